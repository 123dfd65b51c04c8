//! The subcommands, one file each.

pub(crate) mod bench;
pub(crate) mod break_key;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod deadlocks;
pub(crate) mod doctor;
pub(crate) mod elect;
pub(crate) mod hold;
pub(crate) mod init;
pub(crate) mod log;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod resize;
pub(crate) mod run;
pub(crate) mod saved_lease;
#[cfg(feature = "console")]
pub(crate) mod serve;
pub(crate) mod show;
#[cfg(feature = "console")]
pub(crate) mod top;
pub(crate) mod wait;
