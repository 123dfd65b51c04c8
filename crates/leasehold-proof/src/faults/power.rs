//! The same schedules, over locks that are known to be broken.
