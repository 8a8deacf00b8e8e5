//! `/openai/v1/files`.

use reqwest::Method;
use serde_json::{Value, json};
use stokehold_api::token::Scope;
use stokehold_objects::Objects;
use tokio::runtime::Handle;
use tokio::task::block_in_place;
use tokio::time::{Duration, Instant, sleep};

use super::{content, form, send};
use crate::openai::error;
use crate::stack::{PATIENCE, Stack};

const FILES: &str = "/openai/v1/files";

async fn put(stack: &Stack, name: &str, purpose: &str, bytes: &[u8]) -> Value {
    stack.json(send(stack, form(name, bytes, &[("purpose", purpose)]))).await
}

#[tokio::test]
async fn files_are_listed_downloaded_and_deleted() {
    let stack = Stack::start().await;
    // One that fits into one request to the store, and one that takes several.
    let large: Vec<u8> = (0..20 << 20).map(|n: usize| u8::try_from(n % 251).unwrap()).collect();
    let mut sent = Vec::new();
    for (name, purpose, bytes) in
        [("a.jsonl", "batch", &b"{}\r\n\n"[..]), ("b.png", "vision", &large), ("c", "batch", b"")]
    {
        let file = put(&stack, name, purpose, bytes).await;
        let now_s = stokehold_queue::now_ms() / 1000;
        assert!(file["created_at"].as_u64().unwrap().abs_diff(now_s) < 60, "{file}");
        assert!(file["expires_at"].as_u64().unwrap().abs_diff(now_s + 30 * 86_400) < 60, "{file}");
        for (member, expected) in [
            ("object", json!("file")),
            ("filename", json!(name)),
            ("purpose", json!(purpose)),
            ("bytes", json!(bytes.len())),
            ("status", json!("processed")),
        ] {
            assert_eq!(file[member], expected, "{member}");
        }
        let id = file["id"].as_str().unwrap().to_owned();
        assert_eq!(stack.json(stack.get(&format!("{FILES}/{id}"))).await, file);
        assert!(content(&stack, &id).await == bytes, "{name}");
        // It is a file of the native API, too.
        let native = stack.json(stack.get(&format!("/v1/files/{}", id.replace('-', "_")))).await;
        assert_eq!((&native["name"], &native["size_bytes"]), (&json!(name), &json!(bytes.len())));
        sent.push(id);
    }
    let list = async |query: &str| {
        let page = stack.json(stack.get(&format!("{FILES}{query}"))).await;
        let ids: Vec<String> =
            page["data"].as_array().unwrap().iter().map(|file| file["id"].as_str().unwrap().to_owned()).collect();
        assert_eq!(
            (page["first_id"].as_str(), page["last_id"].as_str()),
            (ids.first().map(String::as_str), ids.last().map(String::as_str))
        );
        (ids, page["has_more"] == true)
    };
    let [a, b, c] = &sent[..] else { panic!() };
    let of = |ids: &[&String]| ids.iter().map(|id| (*id).clone()).collect::<Vec<_>>();
    assert_eq!(list("").await, (of(&[c, b, a]), false));
    assert_eq!(list("?order=asc&limit=2").await, (of(&[a, b]), true));
    assert_eq!(list(&format!("?order=asc&limit=2&after={b}")).await, (of(&[c]), false));
    assert_eq!(list("?purpose=batch&limit=10000").await, (of(&[c, a]), false));
    for query in ["limit=0", "limit=10001", "order=up", "after=x", "state=x"] {
        assert_eq!(error(stack.get(&format!("{FILES}?{query}"))).await.0, 400, "{query}");
    }

    let rival = stack.token_of("rival", &Scope::ALL, None).await;
    let foreign = |method: Method, path: &str| {
        stack.client.request(method, format!("{}{FILES}{path}", stack.url)).bearer_auth(&rival)
    };
    for (method, path) in
        [(Method::GET, format!("/{a}")), (Method::GET, format!("/{a}/content")), (Method::DELETE, format!("/{a}"))]
    {
        assert_eq!(error(foreign(method, &path)).await.0, 404, "{path}");
    }
    assert_eq!(stack.json(foreign(Method::GET, "")).await["data"], json!([]));

    let deleted = stack.json(stack.request(Method::DELETE, &format!("{FILES}/{b}"))).await;
    assert_eq!(deleted, json!({"id": b, "object": "file", "deleted": true}));
    assert_eq!(list("").await, (of(&[c, a]), false));
    // The native deletion of a file takes it from the list as well.
    stack.json(stack.request(Method::DELETE, &format!("/v1/files/{}", c.replace('-', "_")))).await;
    assert_eq!(list("?limit=1").await, (of(&[a]), false));
    for path in [format!("/{b}"), format!("/{b}/content"), format!("/{c}"), "/file-x".to_owned()] {
        assert_eq!(error(stack.get(&format!("{FILES}{path}"))).await.0, 404, "{path}");
    }
    let audit = stack.json(stack.get("/v1/audit")).await;
    let action = |change: &Value| (change["action"].clone(), change["object"].clone());
    let changes: Vec<_> = audit["changes"].as_array().unwrap().iter().map(action).collect();
    assert!(changes.contains(&(json!("DELETE /openai/v1/files/{id}"), json!(b))), "{changes:?}");
}

#[tokio::test]
async fn what_is_no_file_is_refused() {
    let stack = Stack::start_with(|config| config.limits.file_bytes = 1_000).await;
    let purpose = ("purpose", "batch");
    let field = |name: &str| form("a", b"x", &[purpose, (name, "x")]);
    let expires = |anchor: &str, seconds: &str| {
        form("a", b"x", &[purpose, ("expires_after[anchor]", anchor), ("expires_after[seconds]", seconds)])
    };
    let no_file = b"--XX\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--XX--\r\n".to_vec();
    let mut cut = form("a", b"x", &[purpose]);
    cut.truncate(60);
    for (form, status, param) in [
        (form("a", b"x", &[]), 400, json!("purpose")),
        (form("a", b"x", &[("purpose", "batch_output")]), 400, json!("purpose")),
        (form("a", b"x", &[purpose, purpose]), 400, json!("purpose")),
        (form("a", b"x", &[("purpose", &"x".repeat(2_000))]), 400, json!("purpose")),
        (form("", b"x", &[purpose]), 400, json!("file")),
        (no_file, 400, json!("file")),
        (field("model"), 400, json!("model")),
        (expires("created_at", "60"), 400, json!("expires_after")),
        (expires("now", "7200"), 400, json!("expires_after")),
        (expires("created_at", "soon"), 400, json!("expires_after")),
        (form("a", &[0; 1_001], &[purpose]), 413, Value::Null),
        // More than the buffers of a connection hold.
        (form("a", &vec![0; 12 << 20], &[purpose]), 413, Value::Null),
        (cut, 400, Value::Null),
        (b"{}".to_vec(), 400, Value::Null),
    ] {
        let (found, shown) = error(send(&stack, form)).await;
        assert_eq!((found, &shown["param"]), (status, &param), "{shown}");
    }
    let plain = stack.request(Method::POST, FILES).header("content-type", "application/json").body("{}");
    assert_eq!(error(plain).await.0, 400);
    let chunks = futures::stream::iter([Ok::<_, std::io::Error>(form("a", b"x", &[purpose]))]);
    let unknown = send(&stack, Vec::new()).body(reqwest::Body::wrap_stream(chunks));
    assert_eq!(error(unknown).await.1["param"], "Content-Length");
    assert_eq!(stack.json(stack.get(FILES)).await["data"], json!([]), "nothing was stored");
    let kept = stack.json(send(&stack, expires("created_at", "3600"))).await;
    assert_eq!(kept["expires_at"].as_u64().unwrap() - kept["created_at"].as_u64().unwrap(), 3_600);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_have_expired_are_deleted() {
    let name = |digit: &str| format!("file_{}", digit.repeat(32));
    let (old, new, again) = (name("0"), name("1"), name("2"));
    let now_s = stokehold_queue::now_ms() / 1000;
    let mut objects = None;
    let stack = Stack::start_with(|config| {
        let store = async {
            let store = Objects::connect(config.s3.clone()).await.unwrap();
            store.ensure_bucket().await.unwrap();
            let (past, future) = (now_s - 1, now_s + 3_600);
            // The last is an image of a call that was repeated later.
            for (id, index, purpose, expires_s) in [
                (&old, "files", "batch", past),
                (&new, "files", "batch", future),
                (&again, "unlisted", "image_edit", past),
                (&again, "unlisted", "image_edit", future),
            ] {
                let about = json!({"purpose": purpose, "bytes": 1, "created_s": 1, "expires_s": expires_s});
                let card = json!({"name": "a", "content_type": "text/plain", "openai": about}).to_string();
                let index = format!("openai-{index}/acme/{id}.{purpose}.{expires_s}");
                let objects = [
                    (format!("inputs/acme/{id}"), "x".to_owned()),
                    (format!("inputs/acme/{id}.json"), card),
                    (index, String::new()),
                ];
                for (key, text) in objects {
                    store.put(&key, text.into(), "text/plain").await.unwrap();
                }
            }
            store
        };
        objects = Some(block_in_place(|| Handle::current().block_on(store)));
    })
    .await;
    let objects = objects.unwrap();
    // It is hidden at once, and deleted soon.
    let listed = stack.json(stack.get(FILES)).await;
    assert_eq!(listed["data"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(error(stack.get(&format!("{FILES}/{}", old.replace('_', "-")))).await.0, 404);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut left = Vec::new();
        for prefix in ["inputs/acme/", "openai-files/acme/", "openai-unlisted/acme/"] {
            left.extend(objects.list(prefix, None, 100).await.unwrap().objects.into_iter().map(|object| object.key));
        }
        if !left.iter().any(|key| key.contains(&old)) && left.len() < 7 {
            assert_eq!(left.len(), 6, "the others are kept: {left:?}");
            break;
        }
        assert!(Instant::now() < deadline, "{left:?}");
        sleep(Duration::from_millis(20)).await;
    }
}
