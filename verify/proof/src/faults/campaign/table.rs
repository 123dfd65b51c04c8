//! What many schedules have shown, in tables.

use std::collections::BTreeMap;
use std::fmt;
use std::iter::Sum;

use clap::ValueEnum;

use super::Outcome;
use crate::faults::check::Property;
use crate::faults::history::Micros;

/// The schedules of one deployment and one algorithm.
#[derive(Debug, Default)]
pub struct Row {
    /// What came of those that were run to the end.
    pub outcomes: Vec<Outcome>,
    /// How many were not.
    pub failed: usize,
}

impl Row {
    /// Violations of what is promised.
    pub fn broken(&self) -> usize {
        self.sum(Outcome::broken)
    }

    pub(in crate::faults) fn sum<N: Sum>(&self, of: impl Fn(&Outcome) -> N) -> N {
        self.outcomes.iter().map(of).sum()
    }

    fn longest(&self, of: impl Fn(&Outcome) -> Micros) -> String {
        seconds(self.outcomes.iter().map(of).max().unwrap_or(0))
    }

    /// How often a property was violated where it is promised, or where it is not: in each schedule in
    /// which it was.
    fn violations(&self, property: Property, promised: bool) -> Vec<usize> {
        let outcomes = self.outcomes.iter();
        let such = outcomes.filter(|it| it.promise.covers(property) == promised);
        such.filter_map(|it| it.violations.get(&property).copied())
            .collect()
    }

    /// Increments of the resource that compares nothing, where exclusion is promised, or where it is not.
    fn unfenced(&self, promised: bool) -> [u64; 2] {
        let such = self.outcomes.iter();
        let such = such.filter(|it| it.promise.exclusion == promised);
        let tallies = such.map(|it| it.unfenced);
        tallies.fold([0, 0], |sum, it| [sum[0] + it.taken, sum[1] + it.lost])
    }
}

/// The rows, by name.
#[derive(Debug, Default)]
pub struct Table(pub BTreeMap<String, Row>);

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "| | schedules (of them beyond what is assumed; not run) | faults | claims | leases | replayed on the core's queue \
             | promised and violated | longest time without a grant | all served again within |\n\
             |---|---|---|---|---|---|---|---|---|\n",
        )?;
        for (name, row) in &self.0 {
            let (schedules, failed) = (row.outcomes.len(), row.failed);
            let beyond = row.sum(|it| usize::from(it.plan.beyond));
            let faults = row.sum(|it| it.injected.len());
            let (claims, grants) = (row.sum(|it| it.claims), row.sum(|it| it.grants));
            let replayed = row.sum(|it| it.replayed);
            let gap = row.longest(|it| it.longest_gap);
            let recovery = row.longest(|it| it.recovered_in.unwrap_or(0));
            let broken = broken(row);
            writeln!(
                f,
                "| `{name}` | {schedules} ({beyond}; {failed}) | {faults} | {claims} | {grants} | {replayed} | {broken} \
                 | {gap} | {recovery} |"
            )?;
        }
        f.write_str(
            "\n| not promised, and seen | exclusion | tokens | fenced writes | order | queue | audit |\n|---|---|---|---|---|---|---|\n",
        )?;
        for (name, row) in &self.0 {
            let told = Property::value_variants().iter();
            let told = told.filter(|it| **it != Property::Service);
            let told = told.map(|property| match &*row.violations(*property, false) {
                [] => "0".to_owned(),
                seen => format!("{} in {}", seen.iter().sum::<usize>(), seen.len()),
            });
            writeln!(f, "| `{name}` | {} |", told.collect::<Vec<_>>().join(" | "))?;
        }
        f.write_str(
            "\n| increments | compared tokens: taken | refused | lost | compared nothing, exclusion promised: \
             taken | lost | not promised: taken | lost |\n|---|---|---|---|---|---|---|---|\n",
        )?;
        for (name, row) in &self.0 {
            let fenced = [
                row.sum(|it| it.fenced.taken),
                row.sum(|it| it.fenced.refused),
                row.sum(|it| it.fenced.lost),
            ];
            let all = [&fenced[..], &row.unfenced(true), &row.unfenced(false)].concat();
            let all: Vec<_> = all.iter().map(u64::to_string).collect();
            let all = all.join(" | ");
            writeln!(f, "| `{name}` | {all} |")?;
        }
        f.write_str("\n| fault | on | how often | time without a grant: median | longest |\n|---|---|---|---|---|\n")?;
        for (name, row) in &self.0 {
            let mut kinds: BTreeMap<&str, Vec<Micros>> = BTreeMap::new();
            for fault in row.outcomes.iter().flat_map(|it| &it.injected) {
                kinds.entry(&fault.name).or_default().push(fault.gap);
            }
            for (kind, mut gaps) in kinds {
                gaps.sort_unstable();
                let count = gaps.len();
                let [median, longest] = [count / 2, count - 1].map(|at| seconds(gaps[at]));
                writeln!(f, "| {kind} | `{name}` | {count} | {median} | {longest} |")?;
            }
        }
        Ok(())
    }
}

fn broken(row: &Row) -> String {
    let each = Property::value_variants().iter();
    let told = each.filter_map(|property| {
        let count: usize = row.violations(*property, true).iter().sum();
        (count > 0).then(|| format!("{} {count}", property.name()))
    });
    let told: Vec<_> = told.collect();
    match told.is_empty() {
        true => "0".to_owned(),
        false => told.join(" "),
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn seconds(micros: u64) -> String {
    format!("{:.2} s", micros as f64 / 1e6)
}
