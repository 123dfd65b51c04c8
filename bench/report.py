"""Tables of what was measured: medians of the rounds, and between what the middle half of them lies."""

import os
import shutil
import statistics

import measure
import peers
import server

BEGIN, END = "<!-- from bench/run: begin -->", "<!-- from bench/run: end -->"
PAGE = os.path.join(peers.ROOT, "bench", "README.md")
BESIDE = os.path.join(peers.ROOT, "docs", "performance")
# In the order in which they are shown, and what is said where they cannot be seen.
PLOTS = {
    "uncontended": "Pairs of acquire and release per second, by number of tasks",
    "hand-offs": "Hand-offs of one key per second, by number of waiters",
    "fairness": "Fewest and most turns of 100 waiters, by lock",
    "processor-time": "Processor time of a pair at the server and at the client, by lock",
}
# docs/performance.md shows the others.
BESIDE_THE_TABLES = ["fairness", "processor-time"]


def in_short(row):
    """One line while it runs."""
    if "failed" in row:
        return row["failed"]
    if "late_ms" in row:
        return f"late by {row['late_ms']:.1f} ms" if row["late_ms"] is not None else "not in time"
    trouble = "".join(f", {row[name]} {name}" for name in ["errors", "lost"] if row[name])
    return f"{row['per_second']:,.0f}/s{trouble}"


def violations(found):
    """The rows in which exclusion was broken."""
    return [
        f"{row['peer']}, {row['case']}, round {row['round'] + 1}: {row['lost']}"
        for row in found["rows"]
        if row.get("lost")
    ]


class Results:
    """The rows by case and lock."""

    def __init__(self, found):
        self.found = found
        self.peers = found["about"]["peers"]
        self.rows = {}
        for row in found["rows"]:
            self.rows.setdefault((row["case"], row["peer"]), []).append(row)

    def values(self, case, peer, figure):
        rows = self.rows.get((case, peer), [])
        return [row[figure] for row in rows if row.get(figure) is not None]

    def median(self, case, peer, figure):
        values = self.values(case, peer, figure)
        return statistics.median(values) if values else None

    def quartiles(self, case, peer, figure):
        values = self.values(case, peer, figure)
        if len(values) < 2:
            return None
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
        return low, high

    def ratio(self, case, peer, figure="per_second", base="leasehold"):
        """The median of the ratios to leasehold in the same round."""
        of_base = {row["round"]: row.get(figure) for row in self.rows.get((case, base), [])}
        ratios = [
            row[figure] / of_base[row["round"]]
            for row in self.rows.get((case, peer), [])
            if row.get(figure) is not None and of_base.get(row["round"])
        ]
        return statistics.median(ratios) if ratios else None

    def measured(self, case):
        """The locks that have a row of it, without those that have a table of their own."""
        return [peer for peer in self.peers if (case, peer["name"]) in self.rows and not peer.get("apart")]

    def cases(self, kind):
        return [case for case in measure.CASES if case.kind == kind and self.measured(case.name)]


def number(value, digits=0):
    return "–" if value is None else f"{value:,.{digits}f}"


def sized(value):
    """With so many digits as it has some use for."""
    if value is None:
        return "–"
    return number(value, 0 if abs(value) >= 10 else 1 if abs(value) >= 1 else 2)


def spread(results, case, peer, figure, show=sized):
    """The median, and the quartiles where there are several rounds."""
    text = show(results.median(case, peer, figure))
    quartiles = results.quartiles(case, peer, figure)
    return f"{text} ({show(quartiles[0])} to {show(quartiles[1])})" if quartiles else text


def table(head, lines, figures=True):
    rule = ["---"] + ["---:" if figures else "---"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *lines]) + "\n"


def title(peer):
    return f"**{peer['title']}**" if peer["name"].startswith("leasehold") else peer["title"]


def tables(found):
    results = Results(found)
    parts = [
        head(found),
        not_first(results),
        pairs(results, "pairs", "Nobody else there: pairs of acquire and release, a key for each task"),
        handoffs(results, "hand-off", "One key, waiters of one process, nothing to do inside"),
        handoffs(results, "hold", "One key, waiters of one process, held for 1 ms, then a pause of 1 ms"),
        handoffs(results, "processes", "One key, several processes"),
        crashes(results),
        further_ways(results),
        pairs(results, "local-pairs", "One machine, no server: pairs, a key for each task"),
        handoffs(results, "local-hand-off", "One machine, no server: one key, waiters of one process"),
        handoffs(results, "local-processes", "One machine, no server: one key, several processes"),
        python(results),
        exclusion(found),
        settings(found),
    ]
    return "\n".join(part for part in parts if part)


def short(found):
    """What the page has of the tables: medians only, and the rows that say most."""
    results = Results(found)
    parts = [
        head(found, in_full=False),
        not_first(results),
        medians(results, "pairs", "Nobody else there: pairs of acquire and release, a key for each task"),
        holders(results),
        crashes(results, in_full=False),
        medians(results, "local-pairs", "One machine, no server: pairs, a key for each task"),
        python(results, in_full=False),
        exclusion(found, in_full=False),
    ]
    return "\n".join(part for part in parts if part)


def medians(results, kind, heading):
    cases = [case for case in results.cases(kind) if case.work == "pairs"]
    if not cases:
        return ""
    counts = [f"{case.tasks} task{'s' if case.tasks > 1 else ''}" for case in cases]
    lines = [
        [title(peer), *(sized(results.median(case.name, peer["name"], "per_second")) for case in cases)]
        for peer in results.measured(cases[0].name) or results.measured(cases[-1].name)
    ]
    return f"### {heading}\n\nPairs per second:\n\n" + table(["", *counts], lines)


# What the page shows of them.
SAY_MOST = ["hand-off-2", "hand-off-100", "hand-off-1000", "hold-100", "processes-8"]


def holders(results):
    """Hand-offs per second of those who wait for one key of a server, of the cases that say most."""
    cases = [case for kind in ["hand-off", "hold", "processes"] for case in results.cases(kind)]
    cases = [case for case in cases if case.name in SAY_MOST]
    if not cases:
        return ""
    columns, shown = [], {}
    for case in cases:
        held = f", held for {case.hold_us / 1000:g} ms" if case.hold_us else ""
        who = f"{case.processes} processes" if case.processes > 1 else f"{case.tasks:,}"
        who += "" if held or case.processes > 1 else " waiters"
        columns.append(f"{who}{held}")
        shown[case.name] = lambda peer, case=case: sized(results.median(case.name, peer, "per_second"))
        if case.name == "hand-off-100":
            columns.append("turns of 100: most / fewest")
            shown["turns"] = lambda peer, case=case: turns(results, case.name, peer)
    lines = [
        [title(peer), *(show(peer["name"]) for show in shown.values())]
        for peer in results.measured(cases[0].name)
    ]
    return "### One key: changes of its holder per second\n\n" + table(["", *columns], lines)


def head(found, in_full=True):
    about = found["about"]
    tools = ", ".join(f"{name} {version}" for name, version in about["tools"].items())
    sentences = [
        f"{about['date']}, tree {about['commit'] or 'without a commit'}.",
        f"{about['cores']} cores shared by clients and server, {about['system']}, Redis {about['redis']} "
        f"without persistence on the loopback, {tools}.",
        f"Rounds: {about['rounds']}, of {about['seconds']:g} s after {about['warm']:g} s that are not "
        "counted (more in Java).",
    ]
    if in_full:
        sentences.append("Medians, and in parentheses the quartiles.")
    if about.get("rust_workers"):
        sentences.insert(2, f"What is written in Rust had {about['rust_workers']} worker threads.")
    if about["awake"]:
        sentences.insert(2, "The cores were kept from sleeping.")
    if about["short"]:
        sentences.insert(0, "**A short run: its figures say that the command works, and no more.**")
    return " ".join(sentences) + "\n"


# What leasehold is compared by: figure, whether more is better, which difference is none, and how
# it is said.
FIGURES = [
    ("per_second", True, 0, "{}/s ({})"),
    ("grants_per_second", True, 0, "{} grants/s ({})"),
    ("server_us", False, 0, "{} server µs ({})"),
    ("client_us", False, 0, "{} client µs ({})"),
    ("late_ms", False, 1, "late by {} ms ({})"),
]
# Less than this is no difference either.
NOTABLE = 1.05


def not_first(results):
    """Says plainly where another lock does better, and which does best."""
    lines = []
    for case in measure.CASES:
        ours = "leasehold-local" if case.kind.startswith("local") else "leasehold"
        by = {}
        for figure, more, least, words in FIGURES:
            if figure == "grants_per_second" and case.work == "pairs":
                # There, every grant is counted already.
                continue
            mine = results.median(case.name, ours, figure)
            others = [
                (results.median(case.name, peer["name"], figure), peer["title"])
                for peer in results.measured(case.name)
                if peer["name"] != ours
            ]
            better = [it for it in others if it[0] is not None and is_better(it[0], mine, more, least)]
            if better:
                value, name = max(better) if more else min(better)
                by.setdefault(name, []).append(words.format(sized(value), sized(mine)))
        if by:
            said = [f"{name} {', '.join(figures)}" for name, figures in by.items()]
            lines.append(f"- `{case.name}`: {'; '.join(said)}.")
    if not lines:
        return ""
    return (
        "### Where leasehold is not first\n\nBy more than 5 % of the medians (lateness: a millisecond). "
        "The best of the others, and in parentheses leasehold:\n\n" + "\n".join(lines) + "\n"
    )


def is_better(value, mine, more, least):
    if mine is None:
        return True
    if more:
        return value > mine * NOTABLE
    return value < mine / NOTABLE and mine - value > least


def further_ways(results):
    """What is not the loopback of a server in memory: see `server.Servers`."""
    headings = {
        "delay": f"A network that takes {2 * server.DELAY_US / 1000:g} ms for a round trip",
        "aof": "A server that writes an append-only file, and waits for the disk once a second",
        "tls": "A connection with TLS (the locks written in Rust)",
    }
    parts = []
    for kind, heading in headings.items():
        parts.append(pairs(results, kind, heading))
        parts.append(handoffs(results, kind, f"{heading}: one key"))
    return "\n".join(part for part in parts if part)


def pairs(results, kind, heading):
    cases = [case for case in results.cases(kind) if case.work == "pairs"]
    if not cases:
        return ""
    listed = results.measured(cases[0].name) or results.measured(cases[-1].name)
    base = "leasehold-local" if kind.startswith("local") else "leasehold"
    counts = [f"{case.tasks} task{'s' if case.tasks > 1 else ''}" for case in cases]
    rates, ratios, waits, cpu = [], [], [], []
    for peer in listed:
        name = peer["name"]
        rates.append([title(peer), *(spread(results, case.name, name, "per_second") for case in cases)])
        ratios.append([title(peer), *(ratio(results, case.name, name, base) for case in cases)])
        waits.append([title(peer), *(times(results, case.name, name, "acquire") for case in cases)])
        cpu.append([title(peer), *(costs(results, case.name, name) for case in cases)])
    text = f"### {heading}\n\nPairs per second:\n\n" + table(["", *counts], rates)
    text += "\nRatio to leasehold in the same round:\n\n" + table(["", *counts], ratios)
    text += "\nTime of an acquire, p50 / p99, in µs:\n\n" + table(["", *counts], waits)
    if kind.startswith("local"):
        return text
    return text + "\nProcessor time of a pair, server / client, in µs:\n\n" + table(["", *counts], cpu)


def ratio(results, case, name, base):
    value = results.ratio(case, name, base=base)
    return "<0.01" if value is not None and value < 0.01 else number(value, 2)


def times(results, case, name, what):
    p50, p99 = (results.median(case, name, f"{what}_{share}_us") for share in ["p50", "p99"])
    return f"{sized(p50)} / {sized(p99)}"


def costs(results, case, name):
    server, client = (results.median(case, name, figure) for figure in ["server_us", "client_us"])
    return f"{sized(server)} / {sized(client)}"


def handoffs(results, kind, heading):
    cases = [case for case in results.cases(kind) if case.work == "key"]
    parts = [f"### {heading}\n"] if cases else []
    for case in cases:
        parts.append(f"{waiters(case)}:\n")
        base = "leasehold-local" if kind.startswith("local") else "leasehold"
        lines = []
        for peer in results.measured(case.name):
            name = peer["name"]
            lines.append([
                title(peer),
                spread(results, case.name, name, "per_second"),
                ratio(results, case.name, name, base),
                sized(results.median(case.name, name, "grants_per_second")),
                times(results, case.name, name, "handoff"),
                turns(results, case.name, name),
                costs(results, case.name, name),
                number(results.median(case.name, name, "held_us")),
            ])
        parts.append(table(
            ["", "hand-offs/s", "of leasehold", "grants/s", "p50 / p99 µs", "turns: most / fewest",
             "server / client µs", "held µs"],
            lines,
        ))
    return "\n".join(parts)


def waiters(case):
    """Who passes the key on, and how long each keeps it, where the heading does not say so."""
    if case.processes == 1:
        return f"{case.tasks:,} waiters"
    each = "of a waiter" if case.tasks == 1 else f"of {case.tasks} waiters"
    held = f"held for {case.hold_us / 1000:g} ms" if case.hold_us else "nothing to do inside"
    return f"{case.processes} processes {each}, {held}"


def turns(results, case, name):
    """Of the least fair round."""
    rows = [row for row in results.rows[(case, name)] if "most_turns" in row]
    if not rows:
        return "–"
    unfairest = max(rows, key=lambda row: row["most_turns"] - row["fewest_turns"])
    return f"{unfairest['most_turns']:,} / {unfairest['fewest_turns']:,}"


# The rows of the package of Python: which case, which of its locks, beside which.
THREADS, TASKS = ["redis-py", "python-redis-lock", "pottery"], ["redis-py-asyncio"]
PYTHON = [
    ("pairs of 1 thread", "pairs-1", "leasehold-python", THREADS),
    ("pairs of 16 threads", "pairs-16", "leasehold-python", THREADS),
    ("pairs of 1 task", "pairs-1", "leasehold-asyncio", TASKS),
    ("pairs of 64 tasks", "pairs-64", "leasehold-asyncio", TASKS),
    ("8 processes, one key", "processes-8-no-hold", "leasehold-python", THREADS),
    ("8 processes, one key, held for 1 ms", "processes-8", "leasehold-python", THREADS),
    ("100 threads, one key", "hand-off-100", "leasehold-python", THREADS),
    ("100 tasks, one key", "hand-off-100", "leasehold-asyncio", TASKS + THREADS),
    ("files: pairs of 1 thread", "local-pairs-1", "leasehold-filelock", ["filelock"]),
    ("files: 8 processes, one path", "local-processes-8-no-hold", "leasehold-filelock", ["filelock"]),
    ("files: 8 processes, one path, held for 1 ms", "local-processes-8", "leasehold-filelock", ["filelock"]),
]


def python(results, in_full=True):
    """The package of Python beside the best of the others: grants, whoever the next is."""
    show = spread if in_full else lambda results, *of: sized(results.median(*of))
    titles = {peer["name"]: peer["title"] for peer in results.peers}
    lines = []
    for words, case, ours, others in PYTHON:
        rate = {name: results.median(case, name, "grants_per_second") for name in [ours, *others]}
        rate = {name: value for name, value in rate.items() if value is not None}
        best = max((name for name in others if name in rate), key=rate.get, default=None)
        if ours not in rate or best is None:
            continue
        lines.append([
            words, show(results, case, ours, "grants_per_second"),
            f"{titles[best]}: {show(results, case, best, 'grants_per_second')}",
            number(results.ratio(case, ours, "grants_per_second", best), 2),
            " and ".join(sized(server_of_a_grant(results, case, name)) for name in [ours, best]),
            *([" and ".join(turns(results, case, name) for name in [ours, best])] if in_full else []),
        ])
    if not lines:
        return ""
    columns = ["", "leasehold-lock", "the best of the others", "times", "server µs", "turns: most / fewest"]
    heading = "### From Python\n\nGrants per second, whoever the next is:\n\n"
    return heading + table(columns[: len(lines[0])], lines)


def server_of_a_grant(results, case, peer):
    costs = [
        row["server_us"] * row["per_second"] / row["grants_per_second"]
        for row in results.rows.get((case, peer), [])
        if row.get("server_us") is not None and row.get("grants_per_second")
    ]
    return statistics.median(costs) if costs else None


def crashes(results, in_full=True):
    cases = results.cases("holder-dies") + results.cases("next-dies")
    if not cases:
        return ""
    heads = {
        "holder-dies": "holder killed: ms after its TTL was over",
        "next-dies": "next in line killed, after a second and more: ms after the release",
        "next-dies-young": "the same, after some tenths of a second",
    }
    lines = []
    for peer in results.measured(cases[0].name):
        cells = [late(results, case.name, peer["name"], in_full) for case in cases]
        lines.append([title(peer), *cells])
    return (
        f"### A process is killed\n\nA TTL of {measure.CRASH_TTL_SECONDS} s for all. When the one "
        "behind has the lock:\n\n" + table(["", *(heads[case.name] for case in cases)], lines)
    )


def late(results, case, name, in_full):
    rows = results.rows.get((case, name), [])
    missed = sum(1 for row in rows if "late_ms" in row and row["late_ms"] is None)
    if missed:
        patience = measure.CRASH_TTL_SECONDS + measure.CRASH_PATIENCE_SECONDS
        of = f" of asking in {missed} of {len(rows)}" if in_full or missed < len(rows) else ""
        return f"not within {patience} s{of}"
    return spread(results, case, name, "late_ms") if in_full else sized(results.median(case, name, "late_ms"))


def exclusion(found, in_full=True):
    rows = [row for row in found["rows"] if "lost" in row]
    checked = sum(row["acquired"] for row in rows)
    lost = sum(row["lost"] for row in rows)
    seen = [
        f"{row['lost']:,} of {row['acquired']:,} ({row['language']}, {row['case']})"
        for row in found["broken"]
    ]
    text = (
        f"### Exclusion\n\n{checked:,} acquisitions in {len(rows)} measurements were checked; "
        f"**{lost:,} overlapped with another**.\n"
    )
    if in_full:
        text += (
            "\nOf broken locks, measured first, the check saw "
            f"{'; '.join(seen) or 'nothing: none was run'}.\n"
        )
    troubled = [row for row in found["rows"] if row.get("errors") or "failed" in row]
    if troubled and not in_full:
        who = ", ".join(sorted({row["peer"] for row in troubled}))
        text += f"\nThere were errors of {who}, counted and gone on after.\n"
    elif troubled:
        text += "\nErrors of the locks, counted and gone on after:\n\n" + table(
            ["", "row", "errors", "the first"],
            [
                [row["peer"], f"{row['case']}, round {row['round'] + 1}", number(row.get("errors")),
                 cleaned(row.get("failed") or row["first_error"])]
                for row in troubled
            ],
            figures=False,
        )
    return text


def cleaned(text):
    return text.replace("|", "/").replace("\n", " ")[:160]


def settings(found):
    lines = [[peer["title"], peer["version"], peer["settings"]] for peer in found["about"]["peers"]]
    return "### Versions and settings\n\n" + table(["", "version", "used as"], lines, figures=False)


def publish(found, text, plots):
    """Puts the short tables into the page, between its marks; all tables and the plots into docs/."""
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    before, mark, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise SystemExit(f"bench/run: {os.path.relpath(PAGE)} has lost its marks {BEGIN} and {END}")
    drawn = {os.path.basename(plot).removesuffix(".svg") for plot in plots}
    if missing := [name for name in PLOTS if name not in drawn]:
        raise SystemExit(f"bench/run: the pages show plots that were not drawn: {', '.join(missing)}")
    # Those of before go, also what is not drawn any more.
    shutil.rmtree(BESIDE, ignore_errors=True)
    os.makedirs(BESIDE)
    for plot in plots:
        shutil.copy(plot, BESIDE)
    with open(os.path.join(BESIDE, "tables.txt"), "w", encoding="utf-8") as file:
        file.write(text)
    shown = [f"![{PLOTS[name]}](../docs/performance/{name}.svg)\n\n" for name in BESIDE_THE_TABLES]
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(f"{before}{BEGIN}\n\n{''.join(shown)}{short(found)}\n{END}{after}")
    print(f"bench/run: wrote {os.path.relpath(PAGE)}, and tables and plots into {os.path.relpath(BESIDE)}")
