//! Where the operating system's randomness comes from on the simulation's thread.
//!
//! Hash maps, claim ids, `select!` and the seeds of retries all begin with a few bytes
//! of `getrandom`. Answered from the run's seed, all of them repeat, and no crate has
//! to be changed for it.

use std::cell::Cell;
use std::ffi::c_void;

use crate::split_mix::split_mix;

thread_local! {
    /// The state of the generator; none on threads that simulate nothing.
    static STATE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// From here on this thread's randomness follows from `seed`.
pub(crate) fn follow(seed: u64) {
    STATE.set(Some(seed));
}

/// Stands in the place of the C library's function of this name, in this program alone.
///
/// # Safety
/// `buffer` has room for `size` bytes, as the function's own contract demands.
#[allow(
    unsafe_code,
    reason = "the function's contract is in C: a pointer and a size"
)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getrandom(buffer: *mut c_void, size: usize, flags: u32) -> isize {
    let Some(mut state) = STATE.try_with(Cell::get).ok().flatten() else {
        // SAFETY: the arguments are the caller's, unchanged.
        let got = unsafe { libc::syscall(libc::SYS_getrandom, buffer, size, flags) };
        return got as isize;
    };
    for at in (0..size).step_by(8) {
        let random = split_mix(&mut state).to_le_bytes();
        let part = random.len().min(size - at);
        // SAFETY: `at + part` is at most `size`, and both places are bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(random.as_ptr(), buffer.cast::<u8>().add(at), part);
        };
    }
    STATE.set(Some(state));
    size.cast_signed()
}
