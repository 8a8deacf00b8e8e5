//! Chooses the class queue and the lane to serve next, like `lua/lib/lease/choose.lua`.

use stokehold_protocol::id::JobId;
use stokehold_queue::queue::AGE_AFTER_MS;

use super::{Choice, Inner, PASSED_MAX, Pull};
use crate::class_queues::{ClassQueueName, parts_of};

impl Inner {
    /// Chooses what to serve to this worker next; `None` if nothing is left for it.
    pub(super) fn choose(&self, pull: &Pull<'_>) -> Option<Choice> {
        let class_of = |priority| self.class_of(priority, pull);
        for priority in [1, 2] {
            if pull.passed[usize::from(priority)] >= PASSED_MAX
                && let Some((class, lead)) = class_of(priority)
                && self.is_aged((priority, class))
            {
                let lane =
                    if pull.query.reach.has(class) { None } else { self.loaded_lane(pull, priority, Some(class)) };
                return Some(Choice { class_queue: (priority, class), lead, most: 1, lane });
            }
        }
        for priority in [0, 1, 2] {
            let Some((class, lead)) = class_of(priority) else { continue };
            // Stop at the point at which a lower priority has been passed over too often.
            let most = (usize::from(priority) + 1..3)
                .filter(|lower| pull.waits[*lower] && pull.passed[*lower] < PASSED_MAX)
                .map(|lower| (PASSED_MAX - pull.passed[lower]) as usize)
                .fold(pull.left(), usize::min);
            if let Some(lane) = self.warm_lane(pull, priority, class) {
                let most = most.min(pull.takes(&lane));
                return Some(Choice { class_queue: parts_of(&lane).0, lead: f64::INFINITY, most, lane: Some(lane) });
            }
            return Some(Choice { class_queue: (priority, class), lead, most, lane: None });
        }
        None
    }

    /// The class with the lowest virtual start that the worker can take, and the distance to the next class. Among
    /// equals, the largest class wins.
    fn class_of(&self, priority: u8, pull: &Pull<'_>) -> Option<(u32, f64)> {
        let reach = &pull.query.reach;
        let is_open = |class| match pull.query.only {
            Some(only) => class == only && reach.has(class),
            None => reach.has(class) || self.loaded_lane(pull, priority, Some(class)).is_some(),
        };
        let tags = &self.tags[usize::from(priority)];
        let within: Vec<(u32, f64)> =
            tags.iter().map(|(class, tag)| (*class, tag)).filter(|(class, _)| is_open(*class)).collect();
        let (best, tag) = *within.iter().min_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))?;
        let rival =
            within.iter().filter(|(class, _)| *class != best).map(|(_, tag)| *tag).fold(f64::INFINITY, f64::min);
        Some((best, rival - tag))
    }

    /// The first lane of the worker's loaded models, of this class or of any, that is in its class queue and whose
    /// model takes more jobs.
    fn loaded_lane(&self, pull: &Pull<'_>, priority: u8, class: Option<u32>) -> Option<String> {
        let is_open = |lane: &String| {
            let (class_queue, tenant, _) = parts_of(lane);
            let stands = || self.class_queues.get(&class_queue)?.tenants.score(&tenant.to_owned());
            let among = || self.lanes_of.get(&(class_queue, tenant.to_owned()))?.score(lane);
            class.is_none_or(|class| class_queue.1 == class) && among().is_some() && stands().is_some()
        };
        let taking = pull.takes.iter().filter(|(_, takes)| *takes > 0);
        taking.map(|(place, _)| format!("{priority}:{place}")).find(is_open)
    }

    /// A lane of the worker's loaded models that may go before the job whose turn it is, or the only lane of that class
    /// that can go.
    fn warm_lane(&self, pull: &Pull<'_>, priority: u8, class: u32) -> Option<String> {
        if pull.query.only.is_some() {
            return None;
        }
        if !pull.query.reach.has(class) {
            return self.loaded_lane(pull, priority, Some(class));
        }
        let open = self.loaded_lane(pull, priority, None)?;
        let is_warm = pull.takes(self.next_lane((priority, class))?) > 0;
        (!is_warm && self.waited_ms((priority, class)) < pull.query.patience_ms).then_some(open)
    }

    /// The lane that is next in a class queue.
    fn next_lane(&self, class_queue: ClassQueueName) -> Option<&String> {
        let (tenant, _) = self.class_queues.get(&class_queue)?.tenants.first()?;
        Some(self.lanes_of.get(&(class_queue, tenant.clone()))?.first()?.0)
    }

    /// The job that is next in a class queue.
    pub(super) fn head(&self, class_queue: ClassQueueName) -> Option<JobId> {
        let lane = self.lanes.get(self.next_lane(class_queue)?)?;
        lane.front.front().or(lane.queue.front()).copied()
    }

    /// The time that the next job has been ready, milliseconds; 0 if there is none.
    fn waited_ms(&self, class_queue: ClassQueueName) -> u64 {
        let head = self.head(class_queue).and_then(|id| self.jobs.get(&id));
        head.map_or(0, |record| self.now.saturating_sub(record.ready_ms))
    }

    /// Whether the next job has waited too long.
    fn is_aged(&self, class_queue: ClassQueueName) -> bool {
        self.waited_ms(class_queue) >= AGE_AFTER_MS
    }
}
