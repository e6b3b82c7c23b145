"""``ambidex check``: the environment."""

from __future__ import annotations

from ambidex.cli import options


def check(json: options.Json = None, debug: options.Debug = False) -> int:
    """Show versions, switches and devices, and what is known to go wrong with them. Loads no framework."""
    from ambidex.api import check as collect
    from ambidex.cli import words

    words.check_writable(json)
    env = collect()
    if json is not None:
        words.put_json(json, words.as_json({"format": 1} | env.as_dict()))
    if json == "-":
        return int(env.exit_code)
    rows: list[tuple[str, str]] = [("python", f"{env.python} on {env.platform}")]
    rows += list(env.packages.items())
    if "keras" in env.packages:
        rows += [(f"keras {key}", str(value)) for key, value in env.keras.items()]
    threads = {"OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"}
    unset = [name for name in sorted(threads) if name not in env.variables]
    rows.append(("cpus", f"{env.cpu_count} usable" + (f"; {', '.join(unset)} not set" if unset else "")))
    rows += [("device", device) for device in env.devices]
    rows += list(env.variables.items())
    if "TF_ENABLE_ONEDNN_OPTS" not in env.variables and any(name.startswith("tensorflow") for name in env.packages):
        rows.append(("TF_ENABLE_ONEDNN_OPTS", "not set: on for x86, sums may be ordered differently from torch"))
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        words.out(f"{name.ljust(width)}  {value}")
    words.out()
    for problem in env.problems:
        words.out(f"{'FAULT' if problem.fault else 'note '} {problem.message}: {problem.why}.")
        words.out(f"      {problem.todo}")
    if not any(problem.fault for problem in env.problems):
        words.out("No combination that is known to go wrong.")
    return int(env.exit_code)
