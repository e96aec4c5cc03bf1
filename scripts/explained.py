"""What benches print of a JSON document of `explain`, in columns."""

import json
import math
import pathlib

# Said instead of a mechanism: true, and less than what is asked.
OPEN = {"slower_work", "no_mechanism", "in_parts", "not_located", "nothing_to_explain"}
# Differences below 3 % (as a log ratio) are no effect of what was planted.
NO_EFFECT = 0.03

HEAD = f"{'time':>10} {'instr.':>8} {'model':>9} {'part':>8} {'cure':>8} {'control':>7}  site"


def read(path):
    """The result in a file; None where there is none."""
    return json.loads(path.read_text())["result"] if pathlib.Path(path).exists() else None


def log_ratio(result):
    return result["comparison"]["analysis"]["wall"]["log_ratio"] if result else None


def change(result):
    """The difference in per cent with its interval."""
    wall = result["comparison"]["analysis"]["wall"]
    low, centre, high = (100 * math.expm1(wall[key]) for key in ("low_log", "log_ratio", "high_log"))
    return f"{centre:+.1f} % [{low:+.1f}, {high:+.1f}]"


def columns(result):
    """Time, instructions, what the model predicts and is gone without the cause, cure, control, site."""
    result = result or {}
    work = result.get("work")
    middle = lambda ends: sum(ends) / 2
    counted = f"{middle(work['instructions']['after']) / middle(work['instructions']['before']):8.3f}" if work else f"{'-':>8}"
    ledger = (result.get("ledgers") or [None])[0]
    model = f"{ledger['predicted']['percent']['value']:7.0f} %" if ledger else f"{'-':>9}"
    named = next((line for line in ledger["lines"] if line["is_named"]), None) if ledger else None
    cause = (result.get("causes") or [None])[0]
    site = named["site"] if named else cause["finding"]["site"] if cause else None
    part = f"{named['part']['percent']['value']:6.0f} %" if named else f"{'-':>8}"
    ratio = log_ratio(result)
    time = f"{100 * math.expm1(ratio):+8.1f} %" if ratio is not None else f"{'-':>10}"
    cure = result.get("cure")
    brought_back = f"{'-':>8} {'-':>7}"
    if cure:
        site = (cure["sites"] or [None])[0]
        brought_back = f"{cure['recovered']['percent']['value']:6.0f} % {cure['control']['percent']['value']:5.0f} %"
    return f"{time} {counted} {model} {part} {brought_back}  {site['text'] if site else ''}"
