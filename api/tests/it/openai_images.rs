//! `/openai/v1/images`: what a handler gets of a call, and what a client gets of its files.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use stokehold_api::token::Scope;
use stokehold_objects::Objects;

use crate::openai::{error, handler, server};
use crate::stack::{Stack, sha256};
use crate::worker::Worker;

const EDITS: &str = "/openai/v1/images/edits";

/// A field of a form: its name, its file name if it is a file, and its bytes.
type Field<'a> = (&'a str, Option<&'a str>, &'a [u8]);

const IMAGE: Field<'_> = ("image", Some("a.png"), b"an image\r\n");

fn text<'a>(name: &'a str, text: &'a str) -> Field<'a> {
    (name, None, text.as_bytes())
}

fn edit(stack: &Stack, fields: &[Field<'_>]) -> RequestBuilder {
    edit_as(stack, &stack.token, fields)
}

fn edit_as(stack: &Stack, token: &str, fields: &[Field<'_>]) -> RequestBuilder {
    let mut form = Vec::new();
    for (name, file, bytes) in fields {
        let file = file.map(|file| format!("; filename=\"{file}\"\r\nContent-Type: image/png")).unwrap_or_default();
        let head = format!("--XX\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n");
        form.extend([head.as_bytes(), bytes, b"\r\n"].concat());
    }
    form.extend(b"--XX--\r\n");
    let request = stack.client.request(Method::POST, format!("{}{EDITS}", stack.url)).bearer_auth(token);
    request.header("content-type", "multipart/form-data; boundary=XX").body(form)
}

/// Uploads an image as the worker of a job, and ends the job with it.
async fn draw(stack: &Stack, worker: &Worker<'_>, lease: &Value) {
    let file = json!({"name": "0.png", "size_bytes": 3, "sha256": sha256(b"png"), "content_type": "image/png"});
    let asked = json!({"job_id": lease["job_id"], "fence": lease["fence"], "files": [file]});
    let place = stack.json(worker.post("uploads", &asked)).await["uploads"][0].clone();
    stack.upload(&place["url"], &place["headers"], b"png").await;
    worker.succeed(lease, json!([{"$file": "0.png"}])).await;
}

#[tokio::test]
async fn a_handler_of_images_returns_files() {
    let stack = Stack::start().await;
    stack.deploy(handler("draw", json!({"openai": "images"}))).await;
    let worker = Worker::join(&stack).await;
    for format in ["b64_json", "url"] {
        let body = json!({"model": "draw", "prompt": "a cat", "n": 1, "response_format": format});
        let request = stack.json(stack.post("/openai/v1/images/generations", &body));
        let (answer, ()) = tokio::join!(request, async {
            let lease = worker.lease().await;
            assert_eq!(lease["input"], json!({"prompt": "a cat", "n": 1}));
            draw(&stack, &worker, &lease).await;
        });
        assert!(answer["created"].as_u64().unwrap() > 1_700_000_000, "{answer}");
        let image = &answer["data"][0];
        if format == "url" {
            let bytes = stack.client.get(image["url"].as_str().unwrap()).send().await.unwrap().bytes().await.unwrap();
            assert_eq!(&bytes[..], b"png");
        } else {
            assert_eq!(image, &json!({"b64_json": "cG5n"}));
        }
    }
}

#[tokio::test]
async fn the_images_of_an_edit_are_files_of_the_job() {
    let stack = Stack::start().await;
    stack.deploy(handler("draw", json!({"openai": "images"}))).await;
    let worker = Worker::join(&stack).await;
    let fields = [
        text("prompt", "7"),
        ("image[]", Some("a.png"), b"an image\r\n"),
        ("image[]", Some("b.png"), b"another"),
        ("mask", Some("m.png"), b"a mask"),
        text("n", "1"),
        text("strength", "0.5"),
        text("response_format", "b64_json"),
        text("user", "u"),
        text("model", "draw"),
    ];
    let mut names = Vec::new();
    for _ in 0..2 {
        // The second is a repeat of the first: it is the same request, and has the same answer.
        let request = edit(&stack, &fields).header("idempotency-key", "k");
        if names.is_empty() {
            let (answer, ()) = tokio::join!(stack.json(request), async {
                let lease = worker.lease().await;
                let input = &lease["input"];
                for image in [&input["image"][0], &input["image"][1], &input["mask"]] {
                    names.push(image["$file"].as_str().unwrap().to_owned());
                }
                let file = |n: usize| json!({"$file": names[n]});
                let expected = json!({
                    "prompt": "7", "image": [file(0), file(1)], "mask": file(2), "n": 1, "strength": 0.5,
                });
                assert_eq!(input, &expected);
                draw(&stack, &worker, &lease).await;
            });
            assert_eq!(answer["data"], json!([{"b64_json": "cG5n"}]));
        } else {
            assert_eq!(stack.json(request).await["data"], json!([{"b64_json": "cG5n"}]));
        }
    }
    for (name, (file, bytes)) in
        names.iter().zip([("a.png", &b"an image\r\n"[..]), ("b.png", b"another"), ("m.png", b"a mask")])
    {
        let view = stack.json(stack.get(&format!("/v1/files/{name}"))).await;
        assert_eq!((&view["name"], &view["content_type"]), (&json!(file), &json!("image/png")));
        let stored = stack.client.get(view["url"].as_str().unwrap()).send().await.unwrap().bytes().await.unwrap();
        assert_eq!(&stored[..], bytes);
    }
    assert_eq!(stack.json(stack.get("/openai/v1/files")).await["data"], json!([]), "no list has them");
}

#[tokio::test]
async fn a_form_that_is_no_edit_is_refused_and_nothing_is_stored() {
    let mut s3 = None;
    let stack = Stack::start_with(|config| s3 = Some(config.s3.clone())).await;
    stack.deploy(handler("draw", json!({"openai": "images"}))).await;
    stack.deploy(handler("embed", json!({"openai": "embeddings"}))).await;
    stack.deploy(server("engine", None, json!({}))).await;
    let (model, large) = (text("model", "draw"), vec![0; (16 << 20) + 1]);
    let many = vec![IMAGE; 17];
    for (fields, status, param) in [
        (vec![model], 400, json!("image")),
        (vec![model, text("image", "x")], 400, json!("image")),
        (vec![model, IMAGE, ("mask", Some("m"), b"m"), ("mask", Some("m"), b"m")], 400, json!("mask")),
        (vec![model, IMAGE, text("n", "1"), text("n", "2")], 400, json!("n")),
        (vec![model, IMAGE, ("picture", Some("m"), b"m")], 400, json!("picture")),
        (vec![model, ("image", Some(""), b"m")], 400, json!("image")),
        ([vec![model], many].concat(), 400, json!("image")),
        (vec![IMAGE], 400, json!("model")),
        (vec![IMAGE, text("model", "nothing")], 404, json!("model")),
        (vec![IMAGE, text("model", "embed")], 400, json!("model")),
        (vec![IMAGE, text("model", "engine")], 400, json!("model")),
        (vec![model, IMAGE, text("stream", "true")], 400, json!("stream")),
        (vec![model, IMAGE, text("response_format", "png")], 400, json!("response_format")),
        (vec![model, ("image", Some("a"), &large)], 413, Value::Null),
    ] {
        let (found, error) = error(edit(&stack, &fields)).await;
        assert_eq!((found, &error["param"]), (status, &param), "{error}");
    }
    let json = stack.post(EDITS, &json!({"model": "draw", "prompt": "a"}));
    assert_eq!(error(json).await.0, 400, "it is no form");
    let reader = stack.token_of("acme", &[Scope::JobsRead], None).await;
    assert_eq!(error(edit_as(&stack, &reader, &[model, IMAGE])).await.0, 403);
    let objects = Objects::connect(s3.unwrap()).await.unwrap();
    let stored = objects.list("inputs/", None, 10).await.unwrap();
    assert!(stored.objects.is_empty(), "{:?}", stored.objects);
}
