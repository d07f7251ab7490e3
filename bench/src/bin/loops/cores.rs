//! The cores a measurement runs on: with each process on one of its own, none moves and none is
//! woken beside the other. Where the system offers no way to say so, it alone decides.

/// Two cores that this process may run on, where it can tell.
#[cfg(target_os = "linux")]
pub(crate) fn two_cores() -> Option<[usize; 2]> {
    let allowed = rustix::thread::sched_getaffinity(None).ok()?;
    let mut cores = (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    Some([cores.next()?, cores.next()?])
}

/// Keeps this process, and the threads it starts from now on, on one core.
#[cfg(target_os = "linux")]
pub(crate) fn stay_on(core: usize) -> std::io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn two_cores() -> Option<[usize; 2]> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn stay_on(_: usize) -> std::io::Result<()> {
    Ok(())
}
