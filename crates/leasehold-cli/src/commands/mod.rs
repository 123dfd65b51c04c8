//! The subcommands, one file each.

mod bench;
mod break_key;
mod completions;
mod doctor;
mod elect;
mod hold;
mod init;
mod ls;
mod man;
mod observe;
mod resize;
mod run;
mod show;

pub(crate) use bench::bench;
pub(crate) use break_key::break_key;
pub(crate) use completions::completions;
pub(crate) use doctor::doctor;
pub(crate) use elect::elect;
pub(crate) use hold::hold;
pub(crate) use init::init;
pub(crate) use ls::ls;
pub(crate) use man::man;
pub(crate) use observe::observe;
pub(crate) use resize::resize;
pub(crate) use run::run;
pub(crate) use show::show;
