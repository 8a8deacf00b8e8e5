//! Lines of a batch that are calls. Each becomes a line of Stokehold's own format, with the endpoint and the input that
//! the call itself would have: the rest of the batch knows no calls.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use stokehold_queue::batches::OpenAiBatch;

use super::error::Error;
use super::handled::{Handled, form_of};
use super::resolve::{Head, Model, resolve};
use super::route::{Call, Form};
use crate::batches::lines::{Item, LINE_MAX, OpenaiLine, Wrong, openai_line};
use crate::endpoints::catalog::Deployed;
use crate::server::json;
use crate::state::App;

/// Maximum number of models that the lines of one batch may name.
const MODELS_MAX: usize = 100;

/// A line of a batch, its text in Stokehold's format, and the endpoint that runs it.
pub(crate) struct Translated {
    pub(crate) item: Item,
    pub(crate) text: Bytes,
    pub(crate) deployed: Arc<Deployed>,
}

/// The lines of one batch.
pub(crate) struct Translator {
    app: App,
    tenant: String,
    call: Call,
    /// The models that lines have named, and the reason for which one cannot be used.
    models: HashMap<String, Result<Arc<UsedModel>, String>>,
    /// The version that the lines want of each endpoint.
    versions: HashMap<String, Option<u32>>,
}

/// A model that a line has named.
struct UsedModel {
    model: Model,
    form: Form,
}

/// The line in Stokehold's format.
#[derive(Serialize)]
struct OwnLine<'a> {
    custom_id: &'a str,
    endpoint: &'a str,
    input: &'a RawValue,
}

/// A line whose model is known by name.
struct CallLine {
    line: OpenaiLine,
    model: String,
}

impl Translator {
    /// Creates the translator of a batch. `None` if this release does not have the call.
    pub(crate) fn new(app: App, tenant: &str, batch: &OpenAiBatch) -> Option<Self> {
        let call = Call::from_path(&batch.endpoint)?;
        let (models, versions) = (HashMap::new(), HashMap::new());
        Some(Self { app, tenant: tenant.to_owned(), call, models, versions })
    }

    /// Translates lines; a line without text is too long.
    ///
    /// # Errors
    /// The reason for which a model cannot be looked up now.
    pub(crate) async fn translate(
        &mut self,
        texts: Vec<Option<Bytes>>,
    ) -> Result<Vec<Result<Translated, Wrong>>, String> {
        let call = self.call;
        let named: Vec<Result<CallLine, Wrong>> =
            blocking(move || texts.into_iter().map(|text| named(text.as_deref(), call)).collect()).await?;
        let mut known = Vec::with_capacity(named.len());
        for outcome in named {
            known.push(match outcome {
                Ok(CallLine { line, model }) => match self.used_model(&model).await? {
                    Ok(known) => Ok((line, known)),
                    Err(why) => Err(Wrong::new(Some(line.custom_id), format!("/body/model: {why}"))),
                },
                Err(wrong) => Err(wrong),
            });
        }
        let translate = move |(line, known): (OpenaiLine, Arc<UsedModel>)| translated(call, line, &known);
        blocking(move || known.into_iter().map(|outcome| outcome.and_then(translate)).collect()).await
    }

    /// The endpoint of a model, or the reason for which a line cannot name it.
    async fn used_model(&mut self, name: &str) -> Result<Result<Arc<UsedModel>, String>, String> {
        if let Some(known) = self.models.get(name) {
            return Ok(known.clone());
        }
        if self.models.len() >= MODELS_MAX {
            return Ok(Err(format!("the lines of a batch name at most {MODELS_MAX} models")));
        }
        let found = match resolve(&self.app, &self.tenant, name).await {
            Ok(model) => self.usable(name, model),
            Err(error) => match error.refusal() {
                Some(why) => Err(why.to_owned()),
                None => return Err(error.message().to_owned()),
            },
        };
        self.models.insert(name.to_owned(), found.clone());
        Ok(found)
    }

    fn usable(&mut self, name: &str, model: Model) -> Result<Arc<UsedModel>, String> {
        let version = &model.target.deployed.version;
        let form = form_of(&version.spec, self.call, name).map_err(|error| error.message().to_owned())?;
        let first = *self.versions.entry(version.name.clone()).or_insert(model.version);
        if first != model.version {
            let before = first.map_or_else(|| "no version".to_owned(), |version| format!("version {version}"));
            let endpoint = &version.name;
            return Err(format!(
                "an earlier line names {before} of the endpoint {endpoint:?}; a batch runs one version of an endpoint"
            ));
        }
        Ok(Arc::new(UsedModel { model, form }))
    }
}

/// Reads a line up to its model.
fn named(text: Option<&[u8]>, call: Call) -> Result<CallLine, Wrong> {
    let text = text.ok_or_else(Wrong::too_long)?;
    if text.trim_ascii().is_empty() {
        return Err(Wrong::new(None, "the line is empty"));
    }
    let custom_id = || crate::batches::lines::custom_id_of(text);
    let line = openai_line(text).map_err(|error| Wrong::new(custom_id(), error.to_string()))?;
    let wrong = |message: String| Wrong::new(Some(line.custom_id.clone()), message);
    if line.url != call.path() {
        return Err(wrong(format!("/url: must be the endpoint of the batch, {}", call.path())));
    }
    let model = Head::read(line.body.get()).and_then(|head| {
        if head.streams() {
            return Err(Error::invalid("stream", "the answer to a line of a batch is not streamed; leave stream out"));
        }
        head.model().map(|(_, name)| name)
    });
    let model = model.map_err(|error| wrong(format!("/body: {}", error.message())))?;
    Ok(CallLine { line, model })
}

fn translated(call: Call, line: OpenaiLine, known: &UsedModel) -> Result<Translated, Wrong> {
    let OpenaiLine { custom_id, body, .. } = line;
    let deployed = known.model.target.deployed.clone();
    let input = input(call, body.get(), known);
    let input = match input {
        Ok(input) => input,
        Err(why) => return Err(Wrong::new(Some(custom_id), format!("/body: {why}"))),
    };
    let own = OwnLine { custom_id: &custom_id, endpoint: &deployed.version.name, input: &input };
    let text = Bytes::from(json::write_line(&own));
    if text.len() >= LINE_MAX {
        return Err(Wrong { custom_id: Some(custom_id), ..Wrong::too_long() });
    }
    let item = Item {
        endpoint: Some(deployed.version.name.clone()),
        custom_id: Some(custom_id),
        input,
        // The body is a member of the input, or the input.
        at: if known.form == Form::Request { "" } else { "/body" },
        metadata: std::collections::BTreeMap::new(),
        unique: true,
    };
    Ok(Translated { item, text, deployed })
}

/// The input of the line's job, exactly as that of the call itself.
fn input(call: Call, body: &str, known: &UsedModel) -> Result<Box<RawValue>, String> {
    let input = || {
        let (model, _) = Head::read(body)?.model()?;
        let handled = Handled::read(known.form, call, body)?;
        handled.check_in_batch()?;
        Ok::<_, Error>(handled.input(known.form, call, body, model, known.model.sent()))
    };
    let input = input().map_err(|error| error.message().to_owned())?;
    RawValue::from_string(input).map_err(|error| format!("is not valid JSON: {error}"))
}

/// Runs `work` on a blocking thread: parsing megabytes of JSON would delay other requests.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.map_err(|error| format!("translating lines panicked: {error}"))
}
