//! Conditional writes.

use futures::future::join_all;

use super::bodies::get;
use super::{bytes, refusal};
use crate::server::Endpoint;

/// Tiny bodies race too rarely to reveal a check that is separate from its write.
const BODY_BYTES: usize = 2_000_000;
const WRITERS: usize = 16;

pub(super) async fn exercise(server: &Endpoint) {
    one_writer_wins(server).await;
    if_match(server).await;
}

async fn one_writer_wins(server: &Endpoint) {
    let (s3, bucket) = (server.sdk(), server.bucket.as_str());
    let bodies: Vec<Vec<u8>> = (0..WRITERS).map(|n| [&[n as u8], bytes(BODY_BYTES).as_slice()].concat()).collect();
    let put = |body: &Vec<u8>| {
        let put = s3.put_object().bucket(bucket).key("conditional/race").if_none_match("*");
        put.body(body.clone().into()).send()
    };
    let answers = join_all(bodies.iter().map(put)).await;
    let won: Vec<usize> = (0..WRITERS).filter(|n| answers[*n].is_ok()).collect();
    let stored = get(&s3, bucket, "conditional/race").await;
    if server.capabilities.conditional_writes {
        assert_eq!(won.len(), 1, "writers {won:?} won");
        assert!(stored == bodies[won[0]], "the winner's body is the one that is there");
        for answer in answers.into_iter().filter(Result::is_err) {
            assert_eq!(refusal(answer), (412, "PreconditionFailed".to_owned()));
        }
        assert_eq!(refusal(put(&bodies[0]).await).0, 412, "and it stays so");
    } else {
        assert_eq!(won.len(), WRITERS, "the server has learnt If-None-Match: say so in its capabilities");
        assert!(bodies.contains(&stored), "one of the bodies, whole");
    }
}

async fn if_match(server: &Endpoint) {
    let (s3, bucket) = (server.sdk(), server.bucket.as_str());
    let put = |body: &'static [u8]| s3.put_object().bucket(bucket).key("conditional/match").body(body.to_vec().into());
    let etag = put(b"1").send().await.unwrap().e_tag.unwrap();
    put(b"2").if_match(&etag).send().await.unwrap();
    let late = put(b"3").if_match(&etag).send().await;
    if server.capabilities.conditional_writes {
        assert_eq!(refusal(late), (412, "PreconditionFailed".to_owned()));
        assert_eq!(get(&s3, bucket, "conditional/match").await, b"2");
        let absent =
            s3.put_object().bucket(bucket).key("conditional/absent").if_match(&etag).body(b"x".to_vec().into());
        assert_eq!(refusal(absent.send().await).0, 404);
    } else {
        assert!(late.is_ok(), "the server has learnt If-Match: say so in its capabilities");
    }
}
