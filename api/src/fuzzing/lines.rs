//! Fuzz target for the lines of a batch: they are the same however their bytes arrive, and each is valid or has an
//! error that can be stored.

use serde_json::Value;
use serde_json::value::RawValue;
use stokehold_queue::batches::LineFormat;

use crate::batches::lines::{Item, Wrong, custom_id_of, parse};
use crate::batches::reader::Splitter;
use crate::batches::results::ErrorLine;
use crate::batches::routes::create::jsonl;
use crate::server::json;

/// Maximum length of a message and of a name, characters.
const MESSAGE_MAX: usize = 300;
const CUSTOM_ID_MAX: usize = 64;

pub fn check(data: &[u8]) {
    let (step, text) = super::split(data);
    let lines = cut(text, step.max(1));
    assert_eq!(lines, cut(text, text.len().max(1)), "lines are the same however the pieces fall");
    let mut joined: Vec<u8> = lines.iter().flat_map(|line| [line.as_slice(), b"\n"].concat()).collect();
    if !text.is_empty() && !text.ends_with(b"\n") {
        joined.pop();
    }
    assert_eq!(joined, text, "no byte is lost");
    for line in &lines {
        let [auto, own, openai] =
            [LineFormat::Auto, LineFormat::Stokehold, LineFormat::Openai].map(|format| parse(line, format));
        let as_one_of_them = |item: &Item| [&own, &openai].into_iter().flatten().any(|it| same(it, item));
        assert!(auto.as_ref().ok().is_none_or(as_one_of_them), "what shows its format is read in that format");
        for outcome in [auto, own, openai] {
            match outcome {
                Ok(item) => is_good(&item, line),
                Err(wrong) => is_told(&wrong),
            }
        }
    }
    if let Ok(raw) = json::parse::<Vec<Box<RawValue>>>(text) {
        are_kept_apart(&raw);
    }
}

/// Reads like a reader that receives `step` bytes at a time.
fn cut(text: &[u8], step: usize) -> Vec<Vec<u8>> {
    let (mut splitter, mut lines, mut end) = (Splitter::default(), Vec::new(), 0);
    let mut pieces = text.chunks(step);
    loop {
        while let Some(line) = splitter.take() {
            assert_eq!(line.number, lines.len() as u64 + 1);
            assert!(line.end > end && line.end <= text.len() as u64);
            end = line.end;
            lines.push(line.text.unwrap().to_vec());
        }
        match pieces.next() {
            Some(piece) => splitter.push(piece),
            None if splitter.ended => return lines,
            None => splitter.ended = true,
        }
    }
}

fn same(one: &Item, other: &Item) -> bool {
    (&one.custom_id, one.input.get(), one.at, &one.endpoint)
        == (&other.custom_id, other.input.get(), other.at, &other.endpoint)
}

fn is_good(item: &Item, line: &[u8]) {
    assert_eq!(item.custom_id, custom_id_of(line), "a line has one name");
    assert!(item.custom_id.as_ref().is_none_or(|id| is_name(id)));
    assert!(item.unique == (item.at == "/body") && (!item.unique || item.custom_id.is_some()));
    assert!(item.metadata.len() <= 32);
    serde_json::from_str::<Box<RawValue>>(item.input.get()).unwrap();
}

fn is_name(id: &str) -> bool {
    (1..=CUSTOM_ID_MAX).contains(&id.chars().count()) && !id.contains('\n')
}

/// Checks that the error becomes one line of JSON in the report.
fn is_told(wrong: &Wrong) {
    assert!(!wrong.message.is_empty() && wrong.message.chars().count() <= MESSAGE_MAX);
    assert!(wrong.custom_id.as_ref().is_none_or(|id| is_name(id)));
    let text = ErrorLine::invalid(1, wrong.custom_id.as_deref(), &wrong.message).text();
    assert_eq!(text.iter().position(|byte| *byte == b'\n'), Some(text.len() - 1));
    let told: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(told["error"]["message"], wrong.message);
}

/// Checks that lines which came in one body are written as separate lines.
fn are_kept_apart(raw: &[Box<RawValue>]) {
    let lines = cut(&jsonl(raw), 7);
    assert_eq!(lines.len(), raw.len());
    for (line, raw) in lines.iter().zip(raw) {
        assert_eq!(serde_json::from_slice::<Value>(line).ok(), serde_json::from_str::<Value>(raw.get()).ok());
    }
}
