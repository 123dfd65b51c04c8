//! What many schedules have shown, in tables.

use std::collections::BTreeMap;
use std::fmt;

use clap::ValueEnum;

use super::Outcome;
use crate::faults::check::Property;

/// The schedules of one deployment and one algorithm.
#[derive(Debug, Clone, Default)]
pub struct Row {
    /// Run to the end.
    pub schedules: usize,
    /// Those of them in which something was beyond what is assumed.
    pub beyond: usize,
    /// Not run to the end.
    pub failed: usize,
    /// Faults injected.
    pub faults: usize,
    /// Claims made.
    pub claims: usize,
    /// Leases handed out.
    pub grants: usize,
    /// Leases replayed on the core's queue.
    pub replayed: usize,
    /// Violations of what is promised, by property.
    pub broken: BTreeMap<Property, usize>,
    /// Violations of what is not promised, and in how many schedules, by property.
    pub unpromised: BTreeMap<Property, (usize, usize)>,
    /// Fenced increments taken, lost, refused.
    pub fenced: (u64, u64, u64),
    /// Unfenced increments taken and lost where exclusion is promised.
    pub unfenced: (u64, u64),
    /// The same where it is not.
    pub unfenced_beyond: (u64, u64),
    /// The longest time without a grant, in microseconds.
    pub longest_gap: u64,
    /// The longest time until all were served after the faults, in microseconds.
    pub slowest_recovery: u64,
    /// By kind of fault: how often, and all times without a grant around it.
    pub kinds: BTreeMap<String, Vec<u64>>,
}

impl Row {
    /// Counts a schedule in.
    pub fn add(&mut self, outcome: &Outcome) {
        self.schedules += 1;
        self.beyond += usize::from(outcome.plan.beyond);
        self.faults += outcome.injected.len();
        self.claims += outcome.claims;
        self.grants += outcome.grants;
        self.replayed += outcome.replayed;
        for (property, count) in &outcome.violations {
            if outcome.promise.covers(*property) {
                *self.broken.entry(*property).or_default() += count;
            } else {
                let entry = self.unpromised.entry(*property).or_default();
                *entry = (entry.0 + count, entry.1 + 1);
            }
        }
        let fenced = outcome.fenced;
        self.fenced.0 += fenced.taken;
        self.fenced.1 += fenced.lost;
        self.fenced.2 += fenced.refused;
        let unfenced = if outcome.promise.exclusion {
            &mut self.unfenced
        } else {
            &mut self.unfenced_beyond
        };
        *unfenced = (
            unfenced.0 + outcome.unfenced.taken,
            unfenced.1 + outcome.unfenced.lost,
        );
        self.longest_gap = self.longest_gap.max(outcome.longest_gap);
        self.slowest_recovery = self.slowest_recovery.max(outcome.recovered_in.unwrap_or(0));
        for fault in &outcome.injected {
            let gaps = self.kinds.entry(fault.name.clone()).or_default();
            gaps.push(fault.gap);
        }
    }

    /// Violations of what is promised.
    pub fn broken(&self) -> usize {
        self.broken.values().sum()
    }
}

/// The rows, by name.
#[derive(Debug, Clone, Default)]
pub struct Table(pub BTreeMap<String, Row>);

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "| | schedules (of them beyond what is assumed; not run) | faults | claims | leases | replayed on the core's queue \
             | promised and violated | longest time without a grant | all served again within |\n\
             |---|---|---|---|---|---|---|---|---|\n",
        )?;
        for (name, row) in &self.0 {
            let (schedules, beyond, failed) = (row.schedules, row.beyond, row.failed);
            let (faults, claims) = (row.faults, row.claims);
            let (grants, replayed) = (row.grants, row.replayed);
            let (gap, recovery) = (seconds(row.longest_gap), seconds(row.slowest_recovery));
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
            let told = told.map(|property| match row.unpromised.get(property) {
                Some((count, schedules)) => format!("{count} in {schedules}"),
                None => "0".to_owned(),
            });
            writeln!(f, "| `{name}` | {} |", told.collect::<Vec<_>>().join(" | "))?;
        }
        f.write_str(
            "\n| increments | compared tokens: taken | refused | lost | compared nothing, exclusion promised: \
             taken | lost | not promised: taken | lost |\n|---|---|---|---|---|---|---|---|\n",
        )?;
        for (name, row) in &self.0 {
            let (taken, lost, refused) = row.fenced;
            let (promised, not) = (row.unfenced, row.unfenced_beyond);
            let all = [taken, refused, lost, promised.0, promised.1, not.0, not.1];
            let all = all.map(|count| count.to_string()).join(" | ");
            writeln!(f, "| `{name}` | {all} |")?;
        }
        f.write_str("\n| fault | on | how often | time without a grant: median | longest |\n|---|---|---|---|---|\n")?;
        for (name, row) in &self.0 {
            for (kind, gaps) in &row.kinds {
                let mut gaps = gaps.clone();
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
    if row.broken.is_empty() {
        return "0".to_owned();
    }
    let broken = row.broken.iter();
    let told = broken.map(|(property, count)| format!("{} {count}", property.name()));
    told.collect::<Vec<_>>().join(" ")
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn seconds(micros: u64) -> String {
    format!("{:.2} s", micros as f64 / 1e6)
}
