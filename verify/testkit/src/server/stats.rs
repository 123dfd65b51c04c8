//! What a server says about its own work.

use std::collections::BTreeMap;
use std::time::Duration;

/// What a server has done, and at what cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// CPU time, user and system, of the thread that runs the commands.
    pub cpu: Duration,
    /// Per command in lower case, subcommands as `client|info`. The testkit's own questions are
    /// among them (`info`, `auth`).
    pub commands: BTreeMap<String, CommandStats>,
}

/// What a server has done of one command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandStats {
    /// How often it ran.
    pub calls: u64,
    /// How long that took in all, by the clock: more than CPU time on a busy machine.
    pub time: Duration,
    /// How often it was turned away before it ran (no permission, out of memory, …).
    pub rejected: u64,
}

impl Stats {
    /// What was done of a command: nothing, if it is not listed.
    pub fn command(&self, name: &str) -> CommandStats {
        self.commands.get(name).copied().unwrap_or_default()
    }

    /// What has been done since `earlier`, of the same run of the same server.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let commands = self.commands.iter().map(|(name, now)| {
            let before = earlier.command(name);
            let since = CommandStats {
                calls: now.calls - before.calls,
                time: now.time - before.time,
                rejected: now.rejected - before.rejected,
            };
            (name.clone(), since)
        });
        let is_new = |(_, since): &(String, CommandStats)| *since != CommandStats::default();
        let commands = commands.filter(is_new).collect();
        let cpu = self.cpu - earlier.cpu;
        Self { cpu, commands }
    }

    /// Reads the answer to `INFO`.
    pub(super) fn parse(info: &str) -> Self {
        let mut stats = Self::default();
        for (name, value) in info.lines().filter_map(|line| line.trim().split_once(':')) {
            if let "used_cpu_user_main_thread" | "used_cpu_sys_main_thread" = name {
                stats.cpu += Duration::from_secs_f64(value.parse().expect("seconds"));
            } else if let Some(command) = name.strip_prefix("cmdstat_") {
                let command = command.to_owned();
                stats.commands.insert(command, CommandStats::parse(value));
            }
        }
        stats
    }
}

impl CommandStats {
    /// Reads `calls=2,usec=10,usec_per_call=5.00,rejected_calls=0,failed_calls=1`.
    fn parse(fields: &str) -> Self {
        let field = |name: &str| {
            let mut fields = fields.split(',').filter_map(|field| field.split_once('='));
            let found = fields.find(|(key, _)| *key == name);
            let value = found.map(|(_, value)| value.parse());
            value.and_then(Result::ok).unwrap_or_default()
        };
        Self {
            calls: field("calls"),
            time: Duration::from_micros(field("usec")),
            rejected: field("rejected_calls"),
        }
    }
}
