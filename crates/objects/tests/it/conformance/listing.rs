//! Listings: every key once, in order, whatever the page.

use futures::{StreamExt, TryStreamExt};

use super::bodies::put;
use crate::server::Endpoint;

/// More than one page of S3.
const MANY: usize = 1_050;

pub(super) async fn exercise(server: &Endpoint) {
    folders(server).await;
    pages(server).await;
}

async fn folders(server: &Endpoint) {
    let (s3, bucket) = (server.sdk(), server.bucket.as_str());
    for key in ["list/a", "list/a/b", "list/a/c/d", "list/b/x", "list/c", "lisu"] {
        put(&s3, bucket, key, b"x").await;
    }
    let list = || s3.list_objects_v2().bucket(bucket).prefix("list/");
    let shown = |page: &aws_sdk_s3::operation::list_objects_v2::ListObjectsV2Output| {
        let keys = page.contents().iter().filter_map(|object| object.key()).map(str::to_owned).collect::<Vec<_>>();
        let folders =
            page.common_prefixes().iter().filter_map(|one| one.prefix()).map(str::to_owned).collect::<Vec<_>>();
        (keys, folders)
    };
    let flat = list().send().await.unwrap();
    assert_eq!(shown(&flat).0, ["list/a", "list/a/b", "list/a/c/d", "list/b/x", "list/c"]);
    let folded = list().delimiter("/").send().await.unwrap();
    assert_eq!(shown(&folded).0, ["list/a", "list/c"]);
    assert_eq!(shown(&folded).1, ["list/a/", "list/b/"]);
    let after = list().start_after("list/a/b").send().await.unwrap();
    assert_eq!(shown(&after).0, ["list/a/c/d", "list/b/x", "list/c"]);

    let (mut keys, mut folders, mut token) = (Vec::new(), Vec::new(), None);
    loop {
        let page = list().delimiter("/").max_keys(1).set_continuation_token(token).send().await.unwrap();
        let (more_keys, more_folders) = shown(&page);
        assert_eq!(more_keys.len() + more_folders.len(), 1, "one of either per page");
        keys.extend(more_keys);
        folders.extend(more_folders);
        token = page.next_continuation_token;
        if token.is_none() {
            break;
        }
    }
    assert_eq!(keys, ["list/a", "list/c"]);
    assert_eq!(folders, ["list/a/", "list/b/"]);

    let first = s3.list_objects().bucket(bucket).prefix("list/").max_keys(2).send().await.unwrap();
    assert_eq!(first.is_truncated, Some(true));
    let marker = first.next_marker().or(first.contents().last().and_then(|last| last.key())).unwrap();
    let rest = s3.list_objects().bucket(bucket).prefix("list/").marker(marker).send().await.unwrap();
    let rest: Vec<_> = rest.contents().iter().filter_map(|object| object.key()).collect();
    assert_eq!(rest, ["list/a/c/d", "list/b/x", "list/c"]);
}

async fn pages(server: &Endpoint) {
    let s3 = server.sdk();
    let expected: Vec<String> = (0..MANY).map(|n| format!("many/{n:05}")).collect();
    futures::stream::iter(&expected)
        .map(|key| s3.put_object().bucket(&server.bucket).key(key).body(b"x".to_vec().into()).send())
        .buffer_unordered(32)
        .try_for_each(|_| async { Ok(()) })
        .await
        .unwrap();
    let pages = s3.list_objects_v2().bucket(&server.bucket).prefix("many/").into_paginator().send();
    let pages: Vec<_> = pages.collect::<Result<_, _>>().await.unwrap();
    assert_eq!(pages.iter().map(|page| page.contents().len()).collect::<Vec<_>>(), [1000, MANY - 1000]);
    let keys: Vec<&str> = pages.iter().flat_map(|page| page.contents()).filter_map(|object| object.key()).collect();
    assert_eq!(keys, expected);
}
