"""Rendering of reports: terminal (``text``), JSON (``json_``) and one self-contained page (``html``)."""
