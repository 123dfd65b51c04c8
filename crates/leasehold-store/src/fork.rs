//! Tells a forked child from the process that made what it has inherited.
//!
//! Hidden: only for the crates of this repository.
//!
//! A child of `fork` has a copy of its parent's memory and descriptors, and none of its threads:
//! nothing that the parent has connected is driven there, and what the child sends would count as
//! sent by the parent. The C library calls a hook in each child, which raises a counter. To compare
//! that costs one load; the process id would cost a system call each time.
//!
//! Children of `vfork` and of a bare `clone` call no hooks. They are there to become other programs.

use std::fmt::Debug;
use std::iter::successors;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Once, OnceLock};

use once_cell::race::OnceBox;

// What belongs to the process, and not to what a scheduler runs in it.
static FORKS: AtomicU32 = AtomicU32::new(0);
static HOOK: Once = Once::new();
static SLOTS: Chain<Slot> = Chain::new();
static NOWHERE: Lazy<Option<UnixDatagram>> = Lazy::new(|| UnixDatagram::unbound().ok());

/// A list that only grows. To read it takes no lock, so a handler of a signal can.
#[derive(Debug)]
struct Chain<T>(OnceLock<Box<(T, Self)>>);

impl<T> Chain<T> {
    const fn new() -> Self {
        Self(OnceLock::new())
    }

    fn iter(&self) -> impl Iterator<Item = &T> {
        let links = successors(self.0.get(), |link| link.1.0.get());
        links.map(|link| &link.0)
    }

    /// The first that will do, made now at the end if there is none.
    fn find_or_add(&self, will_do: impl Fn(&T) -> bool, make: impl Fn() -> T) -> &T {
        let mut place = self;
        loop {
            let (value, rest) = &**place.0.get_or_init(|| Box::new((make(), Self::new())));
            if will_do(value) {
                return value;
            }
            place = rest;
        }
    }
}

/// A value that is made when it is first used. Several threads may make it at the same time; one of
/// their values stays. Unlike with `LazyLock`, no thread waits for another: after a fork in the middle
/// of it, the child would wait for a thread that it does not have.
pub struct Lazy<T> {
    value: OnceBox<T>,
    make: fn() -> T,
}

impl<T> Lazy<T> {
    /// Will be made by this function.
    #[must_use]
    pub const fn new(make: fn() -> T) -> Self {
        let value = OnceBox::new();
        Self { value, make }
    }
}

impl<T> Deref for Lazy<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.get_or_init(|| Box::new((self.make)()))
    }
}

crate::debug!(Lazy<T: Debug>; |it| value: it.value.get());

/// The process in which a value was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// This one.
    #[must_use]
    pub fn this() -> Self {
        // Without memory for the hook, forks go unnoticed.
        HOOK.call_once(|| _ = system::pthread_atfork(None, None, Some(in_child)));
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this is another one: a forked child that has inherited the value.
    #[must_use]
    pub fn has_forked(self) -> bool {
        self.0 != FORKS.load(Ordering::Relaxed)
    }
}

/// From now on calls these around each fork: before it, after it in the process that forks, and in
/// the child, where a hook may do only what a handler of a signal may do.
pub fn around_forks(before: extern "C" fn(), here: extern "C" fn(), there: extern "C" fn()) {
    // Without memory for them, forks go on without.
    let _ = system::pthread_atfork(Some(before), Some(here), Some(there));
}

/// A value of which each process has its own: a forked child does not use its parent's.
#[derive(Debug)]
pub struct PerProcess<T>(Chain<(Process, T)>);

impl<T> PerProcess<T> {
    /// Nobody's yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Chain::new())
    }

    /// That of this process, if it has one.
    pub fn get(&self) -> Option<&T> {
        let this = Process::this();
        let mut all = self.0.iter();
        all.find_map(|(process, value)| (*process == this).then_some(value))
    }

    /// That of this process, made now if it has none.
    pub fn get_or_init(&self, make: impl Fn() -> T) -> &T {
        let this = Process::this();
        let is_ours = |(process, _): &(Process, T)| *process == this;
        &self.0.find_or_add(is_ours, || (this, make())).1
    }
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// A descriptor that forked children do not keep open, until this is dropped.
#[derive(Debug)]
pub struct NotInherited(&'static Slot);

/// One of those descriptors. A slot is never freed, since a fork may read it at any time.
#[derive(Debug)]
struct Slot {
    /// Its number, or one of the two below.
    number: AtomicI32,
    instead: AtomicI32,
}

const FREE: i32 = -1;
const TAKEN: i32 = -2;

impl NotInherited {
    /// In a forked child, the number of `kept` stands for a copy of `instead`: nobody there closes
    /// a number that is somebody else's by then. Both must stay open as long as this lives.
    #[must_use]
    pub fn new(kept: BorrowedFd<'_>, instead: BorrowedFd<'_>) -> Self {
        let (order, otherwise) = (Ordering::Acquire, Ordering::Relaxed);
        let take = |slot: &Slot| {
            let taken = slot.number.compare_exchange(FREE, TAKEN, order, otherwise);
            taken.is_ok()
        };
        let slot = SLOTS.find_or_add(take, || Slot {
            number: AtomicI32::new(FREE),
            instead: AtomicI32::new(FREE),
        });
        slot.instead.store(instead.as_raw_fd(), Ordering::Relaxed);
        slot.number.store(kept.as_raw_fd(), Ordering::Release);
        Self(slot)
    }

    /// In a forked child, the number of this connection stands for a socket that leads nowhere: the
    /// peer sees the parent's end, whatever becomes of the child. `None` without a descriptor to spare.
    #[must_use]
    pub fn connection(kept: BorrowedFd<'_>) -> Option<Self> {
        Some(Self::new(kept, NOWHERE.as_ref()?.as_fd()))
    }

    /// From now on children keep it: it is meant for one of them.
    pub fn lend(&self) {
        self.0.number.store(TAKEN, Ordering::Release);
    }
}

impl Drop for NotInherited {
    fn drop(&mut self) {
        self.0.number.store(FREE, Ordering::Release);
    }
}

/// Runs in each forked child before `fork` returns there, and does only what a handler of a signal
/// may do: loads, stores and system calls.
extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    for slot in SLOTS.iter() {
        let number = slot.number.load(Ordering::Acquire);
        if number >= 0 {
            system::replace(slot.instead.load(Ordering::Relaxed), number);
        }
    }
}

#[allow(
    unsafe_code,
    reason = "no safe interface has a hook in forked children"
)]
mod system {
    use std::ffi::c_int;

    type Hook = Option<extern "C" fn()>;

    // SAFETY: these are the declarations of POSIX and, for `dup3`, of Linux, and any arguments are
    // valid. `dup2` and `dup3` are called for descriptors of `NotInherited` only, which are open,
    // and in a child that has just begun, where nobody else uses their numbers.
    unsafe extern "C" {
        pub(super) safe fn pthread_atfork(prepare: Hook, parent: Hook, child: Hook) -> c_int;
        #[cfg(target_os = "linux")]
        safe fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int;
        #[cfg(not(target_os = "linux"))]
        safe fn dup2(from: c_int, to: c_int) -> c_int;
    }

    pub(super) fn replace(from: c_int, to: c_int) {
        #[cfg(target_os = "linux")]
        let _ = dup3(from, to, rustix::io::DupFlags::CLOEXEC.bits().cast_signed());
        #[cfg(not(target_os = "linux"))]
        let _ = dup2(from, to);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Two threads are in the middle of making the value at the same time.
    #[test]
    fn nobody_waits_for_another_to_make_a_value() {
        static BOTH: Barrier = Barrier::new(2);
        static VALUE: Lazy<u32> = Lazy::new(|| {
            BOTH.wait();
            7
        });
        let (made, values) = channel();
        for _ in 0..2 {
            let made = made.clone();
            thread::spawn(move || made.send(&*VALUE));
        }
        let long = Duration::from_secs(60);
        let [one, other] = [values.recv_timeout(long), values.recv_timeout(long)];
        assert_eq!(one, Ok(&7));
        assert!(
            std::ptr::eq(one.unwrap(), other.unwrap()),
            "one of them stays"
        );
    }
}
