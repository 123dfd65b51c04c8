"""Draws results.json as SVG: `plots.py RESULTS DIRECTORY`. Needs matplotlib, so `run` starts it."""

import json
import os
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator, NullLocator

from report import Results

# Greys and colours that can be read on white and on black; the background is left out.
TEXT = "#7d8590"
OURS = "#e8590c"
OTHERS = ["#1c7ed6", "#37a14f", "#b14fc9", "#1098ad", "#a47b00", "#d6336c", "#6b7fd7", "#748091",
          "#9a7355"]
plt.rcParams.update({
    # Text stays text, and what is drawn twice is the same file.
    "svg.fonttype": "none",
    "svg.hashsalt": "leasehold",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": TEXT,
    "axes.titlecolor": TEXT,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
})


def main():
    source, directory = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        results = Results(json.load(file))
    lines(results, directory, "pairs", "uncontended", "tasks, a key each", "pairs per second")
    lines(results, directory, "hand-off", "hand-offs", "waiters for one key, nothing held",
          "hand-offs per second")
    fairness(results, directory)
    processor_time(results, directory)


def save(figure, directory, name):
    figure.savefig(os.path.join(directory, f"{name}.svg"), bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def logarithmic(set_scale, axis):
    """Named at 1, 2, 5 and ten times these."""
    set_scale("log")
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")


def colours(results):
    """The same colour for a lock in all plots."""
    others = [peer["name"] for peer in results.peers if not peer["name"].startswith("leasehold")]
    return {name: OTHERS[at % len(OTHERS)] for at, name in enumerate(others)}


def lines(results, directory, kind, name, across, up):
    """How much gets done, by how many there are; the middle half of the rounds as bars."""
    cases = results.cases(kind)
    if not cases:
        return
    figure, axes = plt.subplots(figsize=(8, 4.5))
    # The best at the right end first, in the legend too.
    listed = sorted(
        results.measured(cases[-1].name),
        key=lambda peer: -(results.median(cases[-1].name, peer["name"], "per_second") or 0),
    )
    for peer in listed:
        ours = peer["name"] == "leasehold"
        points = []
        for at, case in enumerate(cases):
            # None at all has no place on this scale.
            middle = results.median(case.name, peer["name"], "per_second")
            if middle:
                low, high = results.quartiles(case.name, peer["name"], "per_second") or (middle, middle)
                points.append((at, middle, max(middle - low, 0), max(high - middle, 0)))
        if points:
            at, middle, below, above = zip(*points)
            axes.errorbar(
                at, middle, yerr=[below, above], label=peer["title"], marker="o", markersize=4, capsize=2,
                color=OURS if ours else colours(results)[peer["name"]],
                linewidth=2.5 if ours else 1.2, zorder=3 if ours else 2,
            )
    logarithmic(axes.set_yscale, axes.yaxis)
    axes.set_xticks(range(len(cases)), [f"{case.tasks:,}" for case in cases])
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(axis="y", color=TEXT, alpha=0.3, linewidth=0.6)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    save(figure, directory, name)


def fairness(results, directory):
    """How many turns the waiters had, as a share of an equal part: the nearer to 1, the fairer."""
    case = "hold-100"
    listed = results.measured(case)[::-1]
    if not listed:
        return
    figure, axes = plt.subplots(figsize=(8, 0.36 * len(listed) + 1.2))
    for at, peer in enumerate(listed):
        rows = [row for row in results.rows[(case, peer["name"])] if row.get("grants_per_second")]
        if not rows:
            continue
        row = max(rows, key=lambda row: row["most_turns"] - row["fewest_turns"])
        seconds = results.found["about"]["seconds"]
        equal = row["grants_per_second"] * seconds / 100
        few, most = row["fewest_turns"] / equal, row["most_turns"] / equal
        colour = OURS if peer["name"] == "leasehold" else OTHERS[0]
        axes.plot([few, most], [at, at], color=colour, linewidth=5, solid_capstyle="butt")
        axes.plot(row["median_turns"] / equal, at, marker="|", color=TEXT, markersize=12)
        axes.annotate(f"{row['most_turns']:,} / {row['fewest_turns']:,}", (most, at),
                      xytext=(8, 0), textcoords="offset points", va="center", fontsize=8)
    axes.axvline(1, color=TEXT, linewidth=0.8, linestyle=":")
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlim(left=-0.1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_yticks(range(len(listed)), [peer["title"] for peer in listed])
    axes.set_xlabel("turns of a waiter, from fewest to most, as a multiple of an equal share\n"
                    "(100 waiters, held 1 ms; the mark is the median; the figures are most / fewest)")
    save(figure, directory, "fairness")


def processor_time(results, directory):
    """What a pair costs the server and the client."""
    case = "pairs-64"
    listed = results.measured(case)[::-1]
    if not listed:
        return
    figure, both = plt.subplots(1, 2, figsize=(8, 0.36 * len(listed) + 1.2), sharey=True)
    for axes, figure_name, label in zip(both, ["server_us", "client_us"], ["server", "client"]):
        values = [results.median(case, peer["name"], figure_name) or float("nan") for peer in listed]
        colour = [OURS if peer["name"] == "leasehold" else OTHERS[0] for peer in listed]
        # Points, not bars: on this scale a bar has no beginning.
        axes.scatter(values, range(len(listed)), color=colour, zorder=2)
        for at, value in enumerate(values):
            axes.annotate(f"{value:.1f}", (value, at), xytext=(7, 0), textcoords="offset points",
                          va="center", fontsize=8)
        logarithmic(axes.set_xscale, axes.xaxis)
        axes.set_xlim(right=2 * max((value for value in values if value == value), default=1))
        axes.grid(axis="x", color=TEXT, alpha=0.3, linewidth=0.6)
        axes.set_xlabel(f"µs of processor time at the {label}\nfor a pair, 64 tasks")
    both[0].set_yticks(range(len(listed)), [peer["title"] for peer in listed])
    save(figure, directory, "processor-time")


main()
