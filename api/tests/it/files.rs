//! `GET /v1/files`: the files of the tenant, page by page.

use serde_json::{Value, json};
use stokehold_objects::Objects;

use crate::stack::{Stack, sha256};

/// Requests the upload of a file; returns the response.
async fn create(stack: &Stack, name: &str, bytes: &[u8]) -> Value {
    let request =
        json!({"name": name, "size_bytes": bytes.len(), "sha256": sha256(bytes), "content_type": "text/plain"});
    stack.json(stack.post("/v1/files", &request)).await
}

async fn upload(stack: &Stack, name: &str, bytes: &'static [u8]) -> String {
    let file = create(stack, name, bytes).await;
    stack.upload(&file["upload_url"], &file["headers"], bytes).await;
    file["id"].as_str().unwrap().to_owned()
}

/// Every file, read with pages of `limit`.
async fn list(stack: &Stack, limit: usize) -> Vec<Value> {
    let (mut files, mut cursor) = (Vec::new(), String::new());
    for _ in 0..20 {
        let page = stack.json(stack.get(&format!("/v1/files?limit={limit}{cursor}"))).await;
        let found = page["files"].as_array().unwrap();
        assert!(found.len() <= limit, "{page}");
        files.extend(found.iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return files,
        }
    }
    panic!("the list does not end: {files:?}");
}

#[tokio::test]
async fn files_are_listed_page_by_page_without_those_that_were_not_uploaded() {
    let stack = Stack::start().await;
    assert!(list(&stack, 20).await.is_empty());
    let mut ids = Vec::new();
    for (name, bytes) in [("a.txt", &b"one"[..]), ("b.txt", b"three"), ("c.txt", b"seven!!"), ("d.txt", b"")] {
        ids.push((upload(&stack, name, bytes).await, name, bytes.len()));
    }
    for number in 0..3 {
        create(&stack, &format!("pending-{number}.txt"), b"not uploaded").await;
    }
    ids.sort();
    for limit in 1..=5 {
        let files = list(&stack, limit).await;
        let found: Vec<_> = files
            .iter()
            .map(|file| {
                let text = |member: &str| file[member].as_str().unwrap();
                assert_eq!(text("content_type"), "text/plain");
                assert!(text("uploaded_at") > "2026", "{file}");
                (text("id").to_owned(), text("name"), usize::try_from(file["size_bytes"].as_u64().unwrap()).unwrap())
            })
            .collect();
        assert_eq!(found, ids, "pages of {limit}");
    }
    for query in ["cursor=file_1", "limit=101", "limit=0", "state=queued"] {
        assert_eq!(stack.problem(stack.get(&format!("/v1/files?{query}"))).await.0, 400, "{query}");
    }
}

#[tokio::test]
async fn a_file_whose_metadata_is_gone_or_damaged_does_not_hide_the_others() {
    let stack = Stack::start().await;
    let (gone, damaged, kept) =
        (upload(&stack, "a", b"1").await, upload(&stack, "b", b"2").await, upload(&stack, "c", b"3").await);
    let objects = Objects::connect(stack.config.s3.clone()).await.unwrap();
    objects.delete(&[format!("inputs/acme/{gone}.json")]).await.unwrap();
    objects.put(&format!("inputs/acme/{damaged}.json"), "{".into(), "application/json").await.unwrap();
    let files = list(&stack, 2).await;
    assert_eq!(files.iter().map(|file| &file["id"]).collect::<Vec<_>>(), [&json!(kept)]);
}
