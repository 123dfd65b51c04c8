//! Real servers, real clients in processes of their own, faults from a seed.
//!
//! A [`plan::Plan`] is drawn from its seed: a deployment, its settings, the clients and
//! what goes wrong when. [`run`] carries it out and leaves a [`history`]; [`check`] reads
//! it, and knows nothing of how it came to be. [`promise`] says which findings break a
//! promise and which are to be expected; [`campaign`] runs many schedules, and [`power`]
//! runs the same schedules over locks that are known to be broken.

pub mod campaign;
pub mod check;
pub mod cli;
pub mod client;
pub mod clock;
pub mod gate;
pub mod history;
pub mod plan;
pub mod power;
pub mod promise;
pub mod run;
pub mod site;
