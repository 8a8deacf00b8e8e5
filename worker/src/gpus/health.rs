//! Decides from readings whether a GPU accepts work. Pure.

use stokehold_protocol::gateway::GpuHealth;

/// A GPU stops accepting work at this many degrees below its slowdown temperature, and accepts work again when it has
/// cooled by another `COOLER_C` degrees.
const HOT_BEFORE_C: u32 = 3;
const COOLER_C: u32 = 7;

/// Slowdown temperature of a GPU that does not report one.
const SLOWDOWN_C: u32 = 90;

/// Number of consecutive failed readings after which a GPU is faulty.
const UNREAD_MAX: u32 = 5;

/// Critical Xids that a faulty program causes on a healthy GPU: graphics engine exception, page fault, stopped
/// processing, preemptive cleanup, video processor exception, contained memory error, context switch timeout. All
/// others mean that the GPU is faulty. <https://docs.nvidia.com/deploy/xid-errors/>; the list is that of NVIDIA's
/// device plugin for Kubernetes, and 94, which ends the program that it occurred in.
const XIDS_OF_PROGRAMS: [u64; 7] = [13, 31, 43, 45, 68, 94, 109];

/// The health-related values of a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signs {
    pub(crate) temperature_c: Option<u32>,
    pub(crate) slowdown_c: Option<u32>,
    pub(crate) ecc_uncorrected: Option<u64>,
}

/// Why a reading failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReadError {
    /// A transient failure.
    Unread(String),
    /// The GPU is off the bus or needs a reset.
    Lost(String),
}

/// The health of a GPU.
#[derive(Debug, Clone, Default)]
pub(crate) struct Health {
    is_hot: bool,
    unread: u32,
    /// The error count at the first reading: earlier errors do not count.
    ecc_before: Option<u64>,
    /// Why it is faulty, if it is.
    fault: Option<String>,
}

impl Health {
    /// Updates the health from a reading.
    pub(crate) fn observe(&mut self, reading: Result<Signs, ReadError>) {
        match reading {
            Ok(signs) => {
                self.unread = 0;
                self.is_hot = is_hot(self.is_hot, signs);
                if let Some(errors) = signs.ecc_uncorrected {
                    let before = *self.ecc_before.get_or_insert(errors);
                    if errors > before {
                        self.mark_faulty(format!("{} uncorrected ECC errors", errors - before));
                    }
                }
            }
            Err(ReadError::Lost(why)) => self.mark_faulty(why),
            Err(ReadError::Unread(why)) => {
                self.unread += 1;
                if self.unread >= UNREAD_MAX {
                    self.mark_faulty(format!("NVML cannot read it: {why}"));
                }
            }
        }
    }

    /// Updates the health from a critical Xid. `true` if it is the GPU's fault.
    pub(crate) fn xid(&mut self, xid: u64) -> bool {
        let is_its_own = !XIDS_OF_PROGRAMS.contains(&xid);
        if is_its_own {
            self.mark_faulty(format!("Xid {xid}"));
        }
        is_its_own
    }

    /// Marks the GPU as faulty until the worker restarts. The first reason is kept.
    pub(crate) fn mark_faulty(&mut self, why: String) {
        self.fault.get_or_insert(why);
    }

    /// The health, and the reason if the GPU is faulty.
    pub(crate) fn verdict(&self) -> (GpuHealth, Option<&str>) {
        match (&self.fault, self.is_hot) {
            (Some(why), _) => (GpuHealth::Faulty, Some(why)),
            (None, true) => (GpuHealth::Hot, None),
            (None, false) => (GpuHealth::Healthy, None),
        }
    }
}

fn is_hot(was_hot: bool, signs: Signs) -> bool {
    let hot_c = signs.slowdown_c.unwrap_or(SLOWDOWN_C).saturating_sub(HOT_BEFORE_C);
    let limit_c = if was_hot { hot_c.saturating_sub(COOLER_C) } else { hot_c };
    signs.temperature_c.is_some_and(|degrees| degrees >= limit_c)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COOL: Signs = Signs { temperature_c: Some(40), slowdown_c: Some(90), ecc_uncorrected: Some(3) };

    fn after(readings: &[Result<Signs, ReadError>]) -> (GpuHealth, Option<String>) {
        let mut health = Health::default();
        readings.iter().for_each(|reading| health.observe(reading.clone()));
        let (verdict, why) = health.verdict();
        (verdict, why.map(str::to_owned))
    }

    #[test]
    fn a_hot_gpu_takes_work_again_when_it_is_clearly_cooler() {
        let mut health = Health::default();
        let verdicts = [86, 87, 85, 80, 79, 86].map(|degrees| {
            health.observe(Ok(Signs { temperature_c: Some(degrees), ..COOL }));
            health.verdict().0
        });
        use GpuHealth::{Healthy, Hot};
        assert_eq!(verdicts, [Healthy, Hot, Hot, Hot, Healthy, Healthy]);
    }

    #[test]
    fn an_uncorrected_error_makes_a_gpu_faulty_and_those_from_before_do_not() {
        assert_eq!(after(&[Ok(COOL), Ok(COOL)]).0, GpuHealth::Healthy);
        let (verdict, why) = after(&[Ok(COOL), Ok(Signs { ecc_uncorrected: Some(5), ..COOL }), Ok(COOL)]);
        assert_eq!((verdict, why.as_deref()), (GpuHealth::Faulty, Some("2 uncorrected ECC errors")));
    }

    #[test]
    fn a_reading_may_fail_and_a_lost_gpu_is_lost() {
        let unread = || Err(ReadError::Unread("busy".to_owned()));
        assert_eq!(after(&[unread(), unread(), unread(), unread(), Ok(COOL), unread()]).0, GpuHealth::Healthy);
        let (verdict, why) = after(&[unread(), unread(), unread(), unread(), unread()]);
        assert_eq!((verdict, why.as_deref()), (GpuHealth::Faulty, Some("NVML cannot read it: busy")));
        let (verdict, why) = after(&[Err(ReadError::Lost("off the bus".to_owned())), Ok(COOL)]);
        assert_eq!((verdict, why.as_deref()), (GpuHealth::Faulty, Some("off the bus")));
    }

    #[test]
    fn an_xid_that_a_program_causes_is_not_the_gpus() {
        let mut health = Health::default();
        assert!([13, 31, 43, 45, 68, 94, 109].iter().all(|xid| !health.xid(*xid)));
        assert_eq!(health.verdict().0, GpuHealth::Healthy);
        assert!(health.xid(79));
        health.xid(48);
        assert_eq!(health.verdict(), (GpuHealth::Faulty, Some("Xid 79")), "the first reason is kept");
    }
}
