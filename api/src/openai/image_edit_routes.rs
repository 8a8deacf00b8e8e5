//! `POST /openai/v1/images/edits` to a handler: a form with images, which become files that the job's input names. They
//! are deleted a day later.

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use stokehold_queue::now_ms;
use tokio::time::Instant;
use uuid::Uuid;

use super::calls;
use super::error::Error;
use super::files::{self, File, IMAGE_EDIT};
use super::handled::form_of;
use super::images::ImageRequest;
use super::multipart::{self, FORM_MAX, Head, Parts};
use super::resolve;
use super::route::{Call, Form};
use crate::error::{Code, Problem};
use crate::files::relays::Relay;
use crate::files::stored::OpenAiFile;
use crate::files::upload_routes::TOTAL;
use crate::files::{NAME_MAX, is_name};
use crate::jobs::inputs::file_key;
use crate::jobs::submit;
use crate::names;
use crate::state::App;
use crate::tenants::auth::{Caller, JobsSubmit};

/// Maximum size of the images of a form, bytes. They are held in memory: as much as an upload holds.
const IMAGES_BYTES_MAX: usize = 16 << 20;

/// Maximum number of the images of a form, and of its parts.
const IMAGES_MAX: usize = 16;
const PARTS_MAX: usize = 48;

/// Maximum size of a part that is text, bytes. OpenAI's longest prompt has 32,000 characters.
const TEXT_MAX: usize = 128 << 10;

/// Time for which the images are kept, seconds: as long as an idempotency key.
const KEEP_S: u64 = 24 * 3_600;

/// Members of the request that are texts, whatever they look like.
const TEXTS: [&str; 12] = [
    "background",
    "input_fidelity",
    "model",
    "moderation",
    "output_format",
    "prompt",
    "quality",
    "response_format",
    "service_tier",
    "size",
    "style",
    "user",
];

/// The form.
#[derive(Default)]
struct EditForm {
    members: Map<String, Value>,
    images: Vec<Image>,
    mask: Option<Image>,
}

/// An image that has arrived.
struct Image {
    name: String,
    content_type: String,
    bytes: Bytes,
}

/// `POST /openai/v1/images/edits`.
pub(super) async fn answer(
    State(app): State<App>,
    caller: Result<Caller<JobsSubmit>, Problem>,
    headers: HeaderMap,
    mut body: Body,
) -> Result<Response, Error> {
    let mut is_asked_for = false;
    let received = receive(&app, caller, &headers, &mut body, &mut is_asked_for).await;
    multipart::finish(body, &headers, is_asked_for).await;
    // The permit bounds the memory that images take, until they are stored.
    let (caller, form, permit) = received?;
    let request = store(&app, &caller.tenant, &headers, form).await?;
    drop(permit);
    calls::run(Call::Images, app, caller, &headers, &request).await
}

async fn receive(
    app: &App,
    caller: Result<Caller<JobsSubmit>, Problem>,
    headers: &HeaderMap,
    body: &mut Body,
    is_asked_for: &mut bool,
) -> Result<(Caller<JobsSubmit>, EditForm, Relay), Error> {
    let caller = caller?;
    if multipart::length(headers)? > IMAGES_BYTES_MAX as u64 + FORM_MAX {
        return Err(too_large());
    }
    let permit = multipart::permit(app, &caller.tenant)?;
    *is_asked_for = true;
    let mut parts = Parts::new(headers, body, Instant::now() + TOTAL)?;
    let (mut form, mut room, mut count) = (EditForm::default(), IMAGES_BYTES_MAX, 0);
    while let Some(head) = parts.next().await? {
        count += 1;
        if count > PARTS_MAX {
            return Err(Problem::new(Code::InvalidRequest, format!("a form has at most {PARTS_MAX} parts")).into());
        }
        match (head.name.as_str(), head.file_name.is_some()) {
            ("image" | "image[]", true) => form.images.push(image(&head, &mut parts, &mut room).await?),
            ("mask", true) if form.mask.is_none() => form.mask = Some(image(&head, &mut parts, &mut room).await?),
            (name @ ("image" | "image[]" | "mask"), false) => {
                return Err(Error::invalid(name, format!("{name} must be a file, with a filename")));
            }
            (name, false) if !form.members.contains_key(name) => {
                let text = parts.text(name, TEXT_MAX).await?;
                form.members.insert(name.to_owned(), member(name, text));
            }
            (name, false) | (name @ "mask", true) => {
                return Err(Error::invalid(name, format!("{name} is given twice")));
            }
            (name, true) => return Err(Error::invalid(name, format!("{name:?} is not an image of this form"))),
        }
    }
    match form.images.len() {
        1..=IMAGES_MAX => Ok((caller, form, permit)),
        0 => Err(Error::invalid("image", "the form must have an image")),
        _ => Err(Error::invalid("image", format!("a form has at most {IMAGES_MAX} images"))),
    }
}

/// Reads an image. All of them have at most `room` bytes.
async fn image(head: &Head, parts: &mut Parts<'_>, room: &mut usize) -> Result<Image, Error> {
    let name = head.file_name.clone().unwrap_or_default();
    if !is_name(&name) {
        let message = format!("{} must have a filename of 1 to {NAME_MAX} printable characters", head.name);
        return Err(Error::invalid(&head.name, message));
    }
    let content_type = head.content_type.clone().filter(|kind| names::is_content_type(kind));
    let mut bytes = BytesMut::new();
    while let Some(chunk) = parts.chunk().await? {
        *room = room.checked_sub(chunk.len()).ok_or_else(too_large)?;
        bytes.extend_from_slice(&chunk);
    }
    let content_type = content_type.unwrap_or_else(|| multipart::OCTETS.to_owned());
    Ok(Image { name, content_type, bytes: bytes.freeze() })
}

/// The value of a member. A form has only texts: those that look like a number or a boolean are one, unless OpenAI
/// defines the member as a text.
fn member(name: &str, text: String) -> Value {
    let scalar = serde_json::from_str(&text).ok().filter(|value: &Value| value.is_number() || value.is_boolean());
    scalar.filter(|_| !TEXTS.contains(&name)).unwrap_or_else(|| text.into())
}

/// Stores the images. Returns the request that names them, as the body of a call without a form.
async fn store(app: &App, tenant: &str, headers: &HeaderMap, form: EditForm) -> Result<String, Error> {
    let key = submit::idempotency_key(headers, None)?;
    let EditForm { mut members, images, mask } = form;
    let ids: Vec<String> = images.iter().map(|image| id_of(tenant, key.as_deref(), image)).collect();
    let file = |id: &String| json!({"$file": id});
    members.insert("image".to_owned(), ids.iter().map(file).collect());
    let mask = mask.map(|mask| (id_of(tenant, key.as_deref(), &mask), mask));
    if let Some((id, _)) = &mask {
        members.insert("mask".to_owned(), file(id));
    }
    let request = Value::Object(members).to_string();

    // Nothing is stored for a request that cannot become a job.
    let head = resolve::Head::read(&request)?;
    let (_, name) = head.model()?;
    calls::is_streamed(Call::Images, &head)?;
    let model = resolve::resolve(app, tenant, &name).await?;
    if form_of(&model.target.deployed.version.spec, Call::Images, &name)? != Form::Handler {
        let message = format!("the model {name:?} is a server, and only handlers with openai = \"images\" edit images");
        return Err(Error::invalid("model", message));
    }
    ImageRequest::read(&request)?;
    let images: Vec<(String, Image)> = ids.into_iter().zip(images).chain(mask).collect();
    let bytes: usize = images.iter().map(|(_, image)| image.bytes.len()).sum();
    app.storage.reserve(tenant, bytes as u64).await?;
    let now_s = now_ms() / 1000;
    for (id, Image { name, content_type, bytes }) in images {
        let (purpose, size) = (IMAGE_EDIT.to_owned(), bytes.len() as u64);
        let about = OpenAiFile { purpose, bytes: size, created_s: now_s, expires_s: now_s + KEEP_S };
        let key = file_key(tenant, &id);
        files::announce(&app.objects, tenant, &File { id, name, about }, &content_type).await?;
        app.objects.put(&key, bytes, &content_type).await?;
    }
    Ok(request)
}

/// ID of the file of an image. A call that is repeated with the same idempotency key names the same files, so that it is
/// the same request.
fn id_of(tenant: &str, key: Option<&str>, image: &Image) -> String {
    let Some(key) = key else { return format!("file_{}", Uuid::now_v7().simple()) };
    let digest = Sha256::new().chain_update(tenant).chain_update("\n").chain_update(key).chain_update("\n");
    let digest = digest.chain_update(&image.name).chain_update("\n").chain_update(&image.content_type);
    let digest = digest.chain_update("\n").chain_update(&image.bytes).finalize();
    format!("file_{}", hex::encode(&digest[..16]))
}

fn too_large() -> Error {
    let message = format!("the images of a form may have at most {IMAGES_BYTES_MAX} bytes; send smaller ones");
    Problem::new(Code::BodyTooLarge, message).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_a_form_are_what_openai_defines_or_what_they_look_like() {
        for (name, text, expected) in [
            ("n", "2", json!(2)),
            ("seed", "-7", json!(-7)),
            ("guidance", "3.5", json!(3.5)),
            ("hires", "true", json!(true)),
            ("prompt", "42", json!("42")),
            ("size", "1024", json!("1024")),
            ("sampler", "euler", json!("euler")),
            ("sampler", "[1]", json!("[1]")),
            ("n", "null", json!("null")),
        ] {
            assert_eq!(member(name, text.to_owned()), expected, "{name}={text}");
        }
    }

    #[test]
    fn the_same_images_under_the_same_key_are_the_same_files() {
        let image = |name: &str, bytes: &'static [u8]| Image {
            name: name.to_owned(),
            content_type: "image/png".to_owned(),
            bytes: Bytes::from_static(bytes),
        };
        let id = id_of("acme", Some("k"), &image("a.png", b"a"));
        assert!(names::is_file_id(&id), "{id}");
        assert_eq!(id, id_of("acme", Some("k"), &image("a.png", b"a")));
        let others = [
            id_of("rival", Some("k"), &image("a.png", b"a")),
            id_of("acme", Some("l"), &image("a.png", b"a")),
            id_of("acme", Some("k"), &image("b.png", b"a")),
            id_of("acme", Some("k"), &image("a.png", b"b")),
            id_of("acme", None, &image("a.png", b"a")),
        ];
        assert!(!others.contains(&id), "{others:?}");
        assert_ne!(id_of("acme", None, &image("a.png", b"a")), id_of("acme", None, &image("a.png", b"a")));
    }
}
