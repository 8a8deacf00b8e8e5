//! Position of a client in the events of a job, and what it is sent from there.

use axum::response::sse::Event;
use serde::Serialize;
use serde_json::value::RawValue;
use stokehold_queue::Fence;
use stokehold_queue::gateway::{JobMessage, LogStream};
use stokehold_queue::job::{Job, JobState};
use stokehold_queue::queue::{KeptEvent, KeptOutputs, OutputsPosition};

use super::{OUTPUTS_PAGE, PAGE, event};
use crate::jobs::routes::is_cursor;

/// Ranks under one fence, see [`rank`].
const RANKS: u64 = 8;

#[derive(Serialize)]
struct ProgressData<'a> {
    fraction: f64,
    message: &'a str,
}

#[derive(Serialize)]
struct LogData<'a> {
    stream: LogStream,
    text: &'a str,
    attempt: u32,
}

#[derive(Serialize)]
struct OutputData<'a> {
    index: u64,
    value: &'a RawValue,
    attempt: u32,
}

#[derive(Serialize)]
struct GapData {
    attempt: u32,
    from: u64,
    to: u64,
}

/// Position of a client in a job's events, which is the content of an event's ID: `<entry>.<number>`. All parts only
/// grow, so that nothing overtakes the end, and a client that resumes with its last ID misses nothing and receives
/// nothing twice.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The last stored event that was sent; empty before the first.
    pub(super) entry: String,
    /// The rank of the last sent state, see [`rank`]; 0 before the first.
    pub(super) rank: u64,
    /// The outputs that were sent or reported missing. Absent in an ID of the previous release, whose events included
    /// outputs.
    pub(super) outputs: Option<OutputsPosition>,
}

/// Bits of the parts of the number in an ID. From its lowest bit, the number holds the rank, the attempt whose outputs
/// were sent, and one more than their count. The previous release reads the whole number as a rank: it only grows, and
/// its last digit is right.
const RANK_BITS: u32 = 24;
const ATTEMPT_BITS: u32 = 12;
const NEXT_BITS: u32 = 28;

const fn most(bits: u32) -> u64 {
    (1 << bits) - 1
}

impl Default for Seen {
    fn default() -> Self {
        Self { entry: String::new(), rank: 0, outputs: Some(OutputsPosition::default()) }
    }
}

impl Seen {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (entry, number) = text.rsplit_once('.')?;
        let entry = if entry == "0" { "" } else { entry };
        (entry.is_empty() || is_cursor(entry)).then_some(())?;
        let number: u64 = number.parse().ok().filter(|number| *number < u64::MAX - RANKS)?;
        let (rank, outputs) = match number >> (RANK_BITS + ATTEMPT_BITS) {
            0 => (number, None),
            next => {
                let attempt = u32::try_from(number >> RANK_BITS & most(ATTEMPT_BITS)).ok()?;
                (number & most(RANK_BITS), Some(OutputsPosition { attempt, next: next - 1 }))
            }
        };
        let seen = Self { entry: entry.to_owned(), rank, outputs };
        // Only the canonical spelling is accepted.
        (seen.to_string() == text).then_some(seen)
    }

    fn number(&self) -> u64 {
        let Some(OutputsPosition { attempt, next }) = self.outputs else { return self.rank };
        // A position that does not fit is capped, and sending repeats from there: 4,095 attempts, 268 million outputs.
        let next = next.min(most(NEXT_BITS) - 2) + 1;
        let attempt = u64::from(attempt).min(most(ATTEMPT_BITS));
        self.rank.min(most(RANK_BITS)) | attempt << RANK_BITS | next << (RANK_BITS + ATTEMPT_BITS)
    }

    /// The events to send for stored events, in their order, and whether those are all for now.
    pub(super) fn take_stored(&mut self, kept: Vec<KeptEvent>, outputs: Vec<KeptOutputs>) -> (Vec<Event>, bool) {
        let (more_kept, more_outputs) = (kept.len() == PAGE as usize, outputs.len() == OUTPUTS_PAGE as usize);
        let mut outputs = outputs;
        if self.outputs.is_none() {
            // A replica of the previous release has already sent these.
            let since_ms = at_ms(&self.entry);
            let old = outputs.iter().take_while(|outputs| outputs.at_ms <= since_ms).count();
            for KeptOutputs { attempt, index, values, .. } in outputs.drain(..old) {
                self.outputs = Some(OutputsPosition { attempt, next: index + values.len() as u64 });
            }
        }
        let (mut kept, mut outputs) = (kept.into_iter().peekable(), outputs.into_iter().peekable());
        let mut events = Vec::new();
        loop {
            let is_output = match (kept.peek(), outputs.peek()) {
                (Some(event), Some(outputs)) => outputs.at_ms <= at_ms(&event.id),
                // The next ones of the other kind may be older.
                (Some(_), None) if more_outputs => break,
                (None, Some(_)) if more_kept => break,
                (Some(_), None) => false,
                (None, Some(_)) => true,
                (None, None) => break,
            };
            if is_output && let Some(KeptOutputs { attempt, index, values, .. }) = outputs.next() {
                if values.is_empty() {
                    events.extend(self.gap(attempt, index));
                }
                for (index, value) in (index..).zip(values) {
                    self.output(attempt, index, &value, &mut events);
                }
            } else if let Some(KeptEvent { id, attempt, message }) = kept.next() {
                self.entry = id;
                match stored_event(&message, attempt) {
                    Ok(event) => events.push(event.id(self.to_string())),
                    Err((index, value)) => self.output(attempt, index, value, &mut events),
                }
            }
        }
        (events, !more_kept && !more_outputs)
    }

    /// The events for relayed outputs, which follow the position.
    pub(super) fn take_relayed(&mut self, outputs: &KeptOutputs) -> Vec<Event> {
        let mut events = Vec::new();
        for (index, value) in (outputs.index..).zip(&outputs.values) {
            self.output(outputs.attempt, index, value, &mut events);
        }
        events
    }

    /// Sends an output once, wherever it is stored: a replica of the previous release stores outputs among the other
    /// events.
    fn output(&mut self, attempt: u32, index: u64, value: &RawValue, events: &mut Vec<Event>) {
        let place = OutputsPosition { attempt, next: index };
        if self.outputs.is_some_and(|seen| place < seen) {
            return;
        }
        events.extend(self.gap(attempt, index));
        self.outputs = Some(OutputsPosition { next: index + 1, ..place });
        events.push(event("output", &OutputData { index, value, attempt }).id(self.to_string()));
    }

    /// The gap event for the outputs missing between those sent and the output `to`, if any.
    fn gap(&mut self, attempt: u32, to: u64) -> Option<Event> {
        let from = match self.outputs {
            Some(seen) if seen.attempt > attempt => return None,
            Some(seen) if seen.attempt == attempt => seen.next,
            Some(_) => 0,
            // The reader's position is not known.
            None => to,
        };
        if from >= to {
            return None;
        }
        self.outputs = Some(OutputsPosition { attempt, next: to });
        Some(event("gap", &GapData { attempt, from, to }).id(self.to_string()))
    }
}

/// Time at which an event was stored, Unix milliseconds: the first part of its ID.
fn at_ms(entry: &str) -> u64 {
    entry.split('-').next().and_then(|ms| ms.parse().ok()).unwrap_or(0)
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let entry = if self.entry.is_empty() { "0" } else { &self.entry };
        write!(f, "{entry}.{}", self.number())
    }
}

/// Rank of the job's state, a number that grows with each change. It grows by the counter of the job's fence, and under
/// the same fence by the order in which states follow one another. One number is left free above each end for `done`,
/// and 0 means that the client has received nothing. The archive stores no fence, so an end never ranks below what its
/// client has received: the last digit of a rank shows whether the client has received the end.
pub(super) fn rank(job: &Job, seen: &Seen) -> u64 {
    let order = match job.state {
        JobState::Blocked => 1,
        JobState::Scheduled => 2,
        JobState::Queued => 3,
        JobState::Running => 4,
        JobState::Succeeded | JobState::Failed | JobState::Cancelled | JobState::Expired => 5,
    };
    let rank = Fence(job.revision.split('#').next().unwrap_or_default().to_owned()).counter() * RANKS + order;
    if job.state.is_terminal() { rank.max(seen.rank / RANKS * RANKS + order) } else { rank }
}

/// Converts a stored event to the form that is sent, or returns the index and the value of an output.
fn stored_event(message: &JobMessage, attempt: u32) -> Result<Event, (u64, &RawValue)> {
    match message {
        JobMessage::Progress { fraction, message } => {
            Ok(event("progress", &ProgressData { fraction: *fraction, message }))
        }
        JobMessage::Log { stream, text } => Ok(event("log", &LogData { stream: *stream, text, attempt })),
        JobMessage::Output { index, value } => Err((*index, value)),
        // Outputs of this form are never stored among the other events.
        JobMessage::Outputs { index, .. } => Err((*index, RawValue::NULL)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_events_id_survives_its_text() {
        let outputs = Some(OutputsPosition { attempt: 3, next: 1_162 });
        for seen in [
            Seen { entry: String::new(), rank: 3, outputs: None },
            Seen { entry: "1700000000000-7".to_owned(), rank: 12, outputs: None },
            Seen { entry: "1700000000000-7".to_owned(), rank: 12, outputs },
            Seen { rank: 12, outputs, ..Seen::default() },
            Seen::default(),
        ] {
            assert_eq!(Seen::parse(&seen.to_string()), Some(seen));
        }
        for wrong in ["", "1", "1-1", ".", ".3", "x.1", "1-1.x", "1-1.-1", "1-1.+1", "1-1.01", "01-1.1", "0-0.1"] {
            assert_eq!(Seen::parse(wrong), None, "{wrong}");
        }
        let most = Seen {
            rank: u64::MAX,
            outputs: Some(OutputsPosition { attempt: u32::MAX, next: u64::MAX }),
            ..Seen::default()
        };
        assert!(Seen::parse(&most.to_string()).is_some(), "also to the release before: {most}");
    }

    fn outputs(attempt: u32, index: u64, count: usize, at_ms: u64) -> KeptOutputs {
        KeptOutputs { attempt, index, values: vec![RawValue::from_string("0".to_owned()).unwrap(); count], at_ms }
    }

    fn log(at_ms: u64) -> KeptEvent {
        let message = JobMessage::Log { stream: LogStream::Stdout, text: "x".to_owned() };
        KeptEvent { id: format!("{at_ms}-0"), attempt: 1, message }
    }

    fn single(at_ms: u64, index: u64) -> KeptEvent {
        let value = RawValue::from_string("0".to_owned()).unwrap();
        KeptEvent { id: format!("{at_ms}-0"), attempt: 1, message: JobMessage::Output { index, value } }
    }

    /// The sent events, as `log`, `output 3` or `gap 3 7`, and whether that is all.
    fn sent(seen: &mut Seen, kept: Vec<KeptEvent>, outputs: Vec<KeptOutputs>) -> (Vec<String>, bool) {
        let (events, is_all) = seen.take_stored(kept, outputs);
        let shown = |event: &Event| {
            let text = format!("{event:?}").replace(['\\', '"'], "");
            let number = |name: &str| {
                let digits = text.split_once(&format!("{name}:"))?.1;
                Some(digits.chars().take_while(char::is_ascii_digit).collect::<String>())
            };
            match (number("index"), number("from"), number("to")) {
                (Some(index), ..) => format!("output {index}"),
                (_, Some(from), Some(to)) => format!("gap {from} {to}"),
                _ => "log".to_owned(),
            }
        };
        (events.iter().map(shown).collect(), is_all)
    }

    #[test]
    fn missing_outputs_are_told_as_gaps_and_none_is_told_twice() {
        let mut seen = Seen::default();
        let kept = vec![log(10), log(30)];
        let (events, is_all) = sent(&mut seen, kept, vec![outputs(1, 0, 2, 10), outputs(1, 2, 1, 20)]);
        assert_eq!(
            (events, is_all),
            (["output 0", "output 1", "log", "output 2", "log"].map(str::to_owned).into(), true)
        );
        // The second of these is new; then some are missing; and at the end others.
        let rest = vec![outputs(1, 2, 2, 40), outputs(1, 7, 1, 50), outputs(1, 9, 0, 60)];
        assert_eq!(sent(&mut seen, vec![], rest).0, ["output 3", "gap 4 7", "output 7", "gap 8 9"]);
        assert_eq!(sent(&mut seen, vec![], vec![outputs(1, 9, 0, 60)]).0, [""; 0]);
        // A retry starts at output 0 again.
        assert_eq!(sent(&mut seen, vec![], vec![outputs(2, 1, 1, 70)]).0, ["gap 0 1", "output 1"]);
        assert_eq!(seen.outputs, Some(OutputsPosition { attempt: 2, next: 2 }));
    }

    /// A full page of outputs of the first attempt.
    fn page() -> Vec<KeptOutputs> {
        (0..u64::from(OUTPUTS_PAGE)).map(|index| outputs(1, index, 1, index + 1)).collect()
    }

    #[test]
    fn who_comes_from_the_release_before_goes_on_where_it_was() {
        let mut seen = Seen::parse("20-0.12").unwrap();
        // Stored both among the other events, for a replica of that release, and separately.
        let kept = vec![single(30, 15)];
        let both = vec![outputs(1, 14, 1, 20), outputs(1, 15, 1, 30), outputs(1, 16, 1, 40)];
        assert_eq!(sent(&mut seen, kept, both).0, ["output 15", "output 16"]);
        let mut seen = Seen::parse("900-0.12").unwrap();
        assert_eq!(sent(&mut seen, vec![log(1_000)], page()), (vec![], false));
        let next = u64::from(OUTPUTS_PAGE);
        assert_eq!(seen.outputs, Some(OutputsPosition { attempt: 1, next }), "the next page follows");
        assert_eq!(sent(&mut Seen::default(), vec![single(10, 0), single(20, 1)], vec![]).0, ["output 0", "output 1"]);
    }

    #[test]
    fn what_is_older_on_the_next_page_is_told_first() {
        let mut seen = Seen::default();
        let next = u64::from(OUTPUTS_PAGE);
        let (events, is_all) = sent(&mut seen, vec![log(70)], page());
        assert_eq!((events.len() as u64, is_all), (next, false));
        let (events, is_all) = sent(&mut seen, vec![log(70)], vec![outputs(1, next, 1, 60)]);
        assert_eq!((events, is_all), ([format!("output {next}"), "log".to_owned()].into(), true));
    }
}
