//! The first stage: validates every line before the first one runs. An interrupted validation starts from the
//! beginning.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::BuildHasher;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use stokehold_objects::Upload;
use stokehold_queue::batches::{Batch, ERRORS_SHOWN, LineError, LineFormat, OnInvalid, Source, Verdict};
use stokehold_queue::nonce;
use tokio::time::{Duration, Instant};

use super::bits::Lines;
use super::lines::{self, INPUT_BYTES_MAX, Item, LINES_MAX, Wrong};
use super::reader::{Line, Reader};
use super::results::ErrorLine;
use super::{Error, Runner};
use crate::endpoints::catalog;
use crate::endpoints::catalog::Deployed;
use crate::jobs::inputs;
use crate::jobs::submit::{Target, refers};
use crate::names;
use crate::openai::lines::{Translated, Translator};
use crate::server::json;
use crate::state::App;

/// Maximum number of lines that are checked together, and the number of bytes that ends a chunk earlier.
const CHUNK_LINES: usize = 500;
const CHUNK_BYTES: usize = 4 << 20;

/// Interval at which the batch's record is updated with the progress of the validation.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Maximum number of endpoints that the lines of one batch may name.
const ENDPOINTS_MAX: usize = 100;

/// Maximum number of file IDs that are cached as existing; the cache is cleared at this size.
const FILES_KNOWN_MAX: usize = 100_000;

const HEADS_AT_ONCE: usize = 16;

const JSONL: &str = "application/jsonl";

impl Runner {
    /// Validates a batch's lines, copies them unless they are in their place already, and starts or fails the batch.
    pub(super) async fn validate(&self, batch: &Batch) -> Result<(), Error> {
        let (source, only) = match &batch.spec.source {
            Source::Uploaded => (batch.input.clone(), None),
            Source::Object { key } => (Some(key.clone()), None),
            Source::Retry { batch: old } => {
                let old = self.batches.get(old).await?;
                let only = match &old {
                    Some(old) => {
                        let (lines, jobs) = self.to_retry(old).await?;
                        // Every pass writes the same, because the old batch does not change any more.
                        self.note_tried(batch, &jobs).await?;
                        Some(lines)
                    }
                    None => None,
                };
                (old.and_then(|old| old.input), only)
            }
        };
        let mut pass = Pass::new(self.app.clone(), batch, source.clone());
        let told = match source {
            Some(source) => self.read_through(batch, &mut pass, &source, only.as_ref()).await?,
            None => {
                pass.refuse(1, "the batch's input no longer exists");
                Some(false)
            }
        };
        // Another replica has finished the validation first.
        let Some(stopped) = told else { return Ok(()) };
        if pass.total == 0 && !stopped && !pass.refused {
            pass.refuse(1, "the batch has no lines");
        }
        self.conclude(batch, pass).await
    }

    /// Validates every line. Returns whether the batch was stopped; `None` if another replica has validated it.
    async fn read_through(
        &self,
        batch: &Batch,
        pass: &mut Pass,
        source: &str,
        only: Option<&Lines>,
    ) -> Result<Option<bool>, Error> {
        let mut reader = Reader::new(&self.app.objects, source, 0, 0);
        let mut told = Instant::now();
        loop {
            let (mut chunk, mut bytes) = (Vec::new(), 0);
            while chunk.len() < CHUNK_LINES && bytes < CHUNK_BYTES {
                match reader.next().await {
                    Ok(Some(line)) if only.is_some_and(|only| !only.contains(line.number)) => drop(line),
                    Ok(Some(line)) => {
                        bytes += line.text.as_ref().map_or(0, Bytes::len);
                        pass.bytes = line.end;
                        chunk.push(line);
                    }
                    Ok(None) => break,
                    Err(Error::Missing { .. }) => {
                        pass.refuse(1, "the batch's input no longer exists");
                        return Ok(Some(false));
                    }
                    Err(error) => return Err(error),
                }
            }
            if chunk.is_empty() {
                return Ok(Some(false));
            }
            pass.take(chunk).await?;
            if pass.refused {
                return Ok(Some(false));
            }
            if told.elapsed() >= TELL_EVERY || batch.stop.is_some() {
                told = Instant::now();
                let counts = (pass.total, pass.invalid);
                match self.batches.validated(&batch.id, counts, &pass.errors, None).await? {
                    None => return Ok(None),
                    // Progress that was shown is not taken back: stop at the position of an earlier pass, not before.
                    Some(true) if pass.total >= batch.total => return Ok(Some(true)),
                    Some(_) => {}
                }
            }
        }
    }

    async fn conclude(&self, batch: &Batch, pass: Pass) -> Result<(), Error> {
        let runs = !pass.refused && (pass.invalid == 0 || batch.spec.on_invalid == OnInvalid::Skip);
        let Pass { total, invalid, errors, versions, wrong, input, copy, report, part, .. } = pass;
        if let Some(copy) = copy {
            copy.finish().await?;
        }
        let part = match report {
            Some(report) => {
                report.finish().await?;
                Some(part)
            }
            None => None,
        };
        let skip = format!("{}invalid-{}.bits", batch.prefix(), nonce());
        if invalid > 0 {
            let bits = Bytes::copy_from_slice(wrong.as_bytes());
            self.app.objects.put(&skip, bits, "application/octet-stream").await?;
        }
        let verdict = Verdict {
            runs,
            input: &input,
            skip: (invalid > 0).then_some(skip.as_str()),
            part: part.as_deref(),
            versions: &versions,
        };
        if self.batches.validated(&batch.id, (total, invalid), &errors, Some(&verdict)).await?.is_some() {
            tracing::info!(batch.id = batch.id, total, invalid, runs, "a batch was validated");
        }
        Ok(())
    }

    /// The lines of an ended batch that failed or expired, and those among them that were jobs.
    async fn to_retry(&self, old: &Batch) -> Result<(Lines, Lines), Error> {
        #[derive(serde::Deserialize)]
        struct Ended {
            line: Option<u64>,
            job_id: Option<serde::de::IgnoredAny>,
            state: String,
        }
        let (mut lines, mut jobs) = (Lines::default(), Lines::default());
        let key = super::results::whole_key(old, super::results::Kind::Errors);
        let mut reader = Reader::new(&self.app.objects, &key, 0, 0);
        while let Some(line) = reader.next().await? {
            let Some(text) = line.text else { continue };
            let ended: Ended = serde_json::from_slice(&text)
                .map_err(|error| Error::Broken(format!("line {} of {key} cannot be read: {error}", line.number)))?;
            if let (Some(line), "failed" | "expired") = (ended.line, ended.state.as_str()) {
                lines.insert(line);
                if ended.job_id.is_some() {
                    jobs.insert(line);
                }
            }
        }
        Ok((lines, jobs))
    }
}

/// One pass over the lines of a batch.
struct Pass {
    app: App,
    tenant: String,
    default_endpoint: String,
    /// Version of the default endpoint; other endpoints use their current one.
    version: Option<u32>,
    format: LineFormat,
    /// Set when the lines are calls of the API of OpenAI.
    calls: Option<Translator>,
    total: u64,
    invalid: u64,
    bytes: u64,
    errors: Vec<LineError>,
    /// Set when the input as a whole is invalid.
    refused: bool,
    wrong: Lines,
    /// Number of empty lines that are invalid only if another line follows.
    blank: u64,
    deployed: HashMap<String, Arc<Deployed>>,
    versions: BTreeMap<String, u32>,
    /// Hashes of the `custom_id`s that must differ.
    seen: HashSet<u64>,
    hasher: RandomState,
    files: HashSet<String>,
    /// Key of the object with the lines, which may not be written yet.
    input: String,
    copy: Option<Upload>,
    report: Option<Upload>,
    part: String,
    prefix: String,
}

impl Pass {
    fn new(app: App, batch: &Batch, source: Option<String>) -> Self {
        let uploaded = batch.spec.source == Source::Uploaded;
        // The lines of a batch that is retried have been translated already.
        let calls = batch.spec.openai.as_ref().filter(|_| matches!(batch.spec.source, Source::Object { .. }));
        let calls = calls.and_then(|openai| Translator::new(app.clone(), &batch.spec.tenant, openai));
        // Another replica may validate the batch at the same time: each writes objects of its own, and Redis selects
        // one.
        let copied = format!("{}input-{}.jsonl", batch.prefix(), nonce());
        Self {
            tenant: batch.spec.tenant.clone(),
            default_endpoint: batch.spec.endpoint.clone(),
            version: batch.spec.version,
            format: batch.spec.format,
            calls,
            total: 0,
            invalid: 0,
            bytes: 0,
            errors: Vec::new(),
            refused: false,
            wrong: Lines::default(),
            blank: 0,
            deployed: HashMap::new(),
            versions: BTreeMap::new(),
            seen: HashSet::new(),
            hasher: RandomState::new(),
            files: HashSet::new(),
            copy: (!uploaded).then(|| app.objects.upload(&copied, JSONL)),
            input: source.filter(|_| uploaded).unwrap_or(copied),
            report: None,
            part: format!("parts/invalid-{}-errors.jsonl", nonce()),
            prefix: batch.prefix(),
            app,
        }
    }

    fn refuse(&mut self, line: u64, message: &str) {
        self.refused = true;
        self.errors.truncate(ERRORS_SHOWN - 1);
        self.errors.push(LineError { line, message: message.to_owned() });
    }

    /// Checks the next lines.
    async fn take(&mut self, chunk: Vec<Line>) -> Result<(), Error> {
        if self.bytes > INPUT_BYTES_MAX {
            self.refuse(self.total + 1, &format!("the input is over {INPUT_BYTES_MAX} bytes"));
            return Ok(());
        }
        // Lines of a retry are numbered anew.
        let mut texts = Vec::with_capacity(chunk.len());
        for line in chunk {
            if line.text.as_ref().is_some_and(|text| text.trim_ascii().is_empty()) {
                self.blank += 1;
                continue;
            }
            texts.extend((0..std::mem::take(&mut self.blank)).map(|_| Some(Bytes::new())));
            texts.push(line.text);
        }
        if self.total + texts.len() as u64 > LINES_MAX {
            self.refuse(LINES_MAX + 1, &format!("a batch has at most {LINES_MAX} lines"));
            return Ok(());
        }
        let parsed = match &mut self.calls {
            Some(calls) => {
                let translated = calls.translate(texts).await.map_err(Error::Broken)?;
                let text = |line: &Result<Translated, Wrong>| line.as_ref().ok().map(|line| line.text.clone());
                self.write(&translated.iter().map(text).collect::<Vec<_>>()).await?;
                translated.into_iter().map(|line| line.map(|line| self.of_call(line))).collect()
            }
            None => {
                self.write(&texts).await?;
                let format = self.format;
                let parse = move |text: Option<Bytes>| match text {
                    Some(text) => lines::parse(&text, format),
                    None => Err(Wrong::too_long()),
                };
                blocking(move || texts.into_iter().map(parse).collect::<Vec<_>>()).await?
            }
        };
        let checked = self.check(parsed).await?;
        for outcome in checked {
            self.total += 1;
            if let Err(wrong) = outcome {
                self.note(wrong).await?;
            }
        }
        Ok(())
    }

    /// Writes lines to the copy, if there is one. A line without text is replaced by an empty one, so that the others
    /// keep their numbers.
    async fn write(&mut self, texts: &[Option<Bytes>]) -> Result<(), Error> {
        let Some(copy) = &mut self.copy else { return Ok(()) };
        for text in texts {
            copy.write(text.as_deref().unwrap_or_default()).await?;
            copy.write(b"\n").await?;
        }
        Ok(())
    }

    /// The line of a call, whose endpoint is known from then on.
    fn of_call(&mut self, Translated { item, deployed, .. }: Translated) -> Item {
        let version = &deployed.version;
        self.versions.insert(version.name.clone(), version.version);
        self.deployed.insert(version.name.clone(), deployed);
        item
    }

    async fn note(&mut self, wrong: Wrong) -> Result<(), Error> {
        let line = self.total;
        self.invalid += 1;
        self.wrong.insert(line);
        let report =
            self.report.get_or_insert_with(|| self.app.objects.upload(&format!("{}{}", self.prefix, self.part), JSONL));
        report.write(&ErrorLine::invalid(line, wrong.custom_id.as_deref(), &wrong.message).text()).await?;
        if self.errors.len() < ERRORS_SHOWN {
            self.errors.push(LineError { line, message: wrong.message });
        }
        Ok(())
    }

    /// Checks the parsed lines against their endpoints, the other lines and the existing files.
    async fn check(&mut self, parsed: Vec<Result<Item, Wrong>>) -> Result<Vec<Result<(), Wrong>>, Error> {
        let mut ready = Vec::with_capacity(parsed.len());
        for outcome in parsed {
            ready.push(match outcome {
                Err(wrong) => Err(wrong),
                Ok(item) if item.unique && !self.is_new(&item) => {
                    let message = "/custom_id: another line has the same custom_id";
                    Err(Wrong::new(item.custom_id, message))
                }
                Ok(item) => {
                    let name = item.endpoint.clone().unwrap_or_else(|| self.default_endpoint.clone());
                    match self.endpoint(&name).await? {
                        Ok(deployed) => Ok((item, deployed)),
                        Err(message) => Err(Wrong::new(item.custom_id, message)),
                    }
                }
            });
        }
        let checked =
            blocking(move || ready.into_iter().map(|outcome| outcome.and_then(check_input)).collect::<Vec<_>>())
                .await?;
        let named: BTreeSet<&String> =
            checked.iter().flatten().flat_map(|(_, files)| files).filter(|id| !self.files.contains(*id)).collect();
        let missing = self.missing(&named).await?;
        let found: Vec<String> = named.into_iter().filter(|id| !missing.contains(*id)).cloned().collect();
        if self.files.len() + found.len() > FILES_KNOWN_MAX {
            self.files.clear();
        }
        self.files.extend(found);
        let there =
            |(custom_id, files): (Option<String>, Vec<String>)| match files.iter().find(|id| missing.contains(*id)) {
                Some(id) => Err(Wrong::new(custom_id, format!("file {id:?} was not uploaded"))),
                None => Ok(()),
            };
        Ok(checked.into_iter().map(|outcome| outcome.and_then(there)).collect())
    }

    fn is_new(&mut self, item: &Item) -> bool {
        self.seen.insert(self.hasher.hash_one(&item.custom_id))
    }

    /// Returns the endpoint of this name, in the version that the whole batch uses, or the reason for which it cannot
    /// be used.
    async fn endpoint(&mut self, name: &str) -> Result<Result<Arc<Deployed>, String>, Error> {
        if let Some(known) = self.deployed.get(name) {
            return Ok(Ok(known.clone()));
        }
        if !names::is_name(name) {
            let why = if name.is_empty() {
                "is missing, and the batch sets no default endpoint"
            } else {
                "is not an endpoint name"
            };
            return Ok(Err(format!("/endpoint: {why}")));
        }
        if self.deployed.len() >= ENDPOINTS_MAX {
            return Ok(Err(format!("/endpoint: the lines of a batch name at most {ENDPOINTS_MAX} endpoints")));
        }
        let version = self.version.filter(|_| name == self.default_endpoint);
        match Target::resolve(&self.app, &self.tenant, name, version).await {
            Ok(Target { deployed, .. }) => {
                self.versions.insert(name.to_owned(), deployed.version.version);
                self.deployed.insert(name.to_owned(), deployed.clone());
                Ok(Ok(deployed))
            }
            Err(error @ catalog::Error::UnknownEndpoint { .. }) => Ok(Err(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    async fn missing(&self, ids: &BTreeSet<&String>) -> Result<HashSet<String>, Error> {
        let heads: Vec<_> = ids
            .iter()
            .map(|id| {
                let (objects, key, id) = (self.app.objects.clone(), inputs::file_key(&self.tenant, id), (*id).clone());
                async move { Ok::<_, Error>(objects.head(&key).await?.is_none().then_some(id)) }
            })
            .collect();
        futures::stream::iter(heads)
            .buffer_unordered(HEADS_AT_ONCE)
            .try_filter_map(|missing| std::future::ready(Ok(missing)))
            .try_collect()
            .await
    }
}

/// The custom ID of a line, and the files that it names.
type Checked = (Option<String>, Vec<String>);

fn check_input((item, deployed): (Item, Arc<Deployed>)) -> Result<Checked, Wrong> {
    let at = item.at;
    let checked = json::strict_value(item.input.get(), at)
        .map_err(|error| format!("{}: {}", error.path, error.message))
        .and_then(|input| match refers(&input) {
            true => Err(format!("{at}: references another job's result; lines of a batch cannot wait for other jobs")),
            false => inputs::check(&deployed.input, &input, at).map_err(|error| error.to_string()),
        });
    match checked {
        Ok(files) => Ok((item.custom_id, files)),
        Err(message) => Err(Wrong::new(item.custom_id, message)),
    }
}

/// Runs `work` on a blocking thread: parsing megabytes of JSON would delay other requests.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Broken(format!("validation panicked: {error}")))
}
