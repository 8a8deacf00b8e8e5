//! Uploads in parts.

use aws_sdk_s3::Client;
use aws_sdk_s3::config::RequestChecksumCalculation;
use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart};

use super::bodies::{get, put};
use super::{bytes, refusal};
use crate::server::Endpoint;

const PART_BYTES: usize = 5 * 1024 * 1024;

pub(super) async fn exercise(server: &Endpoint) {
    let upload = |key| Upload { s3: server.sdk(), bucket: server.bucket.clone(), key };
    parts_are_joined(&upload("multipart/joined")).await;
    a_part_may_be_a_copy(&upload("multipart/copied")).await;
    an_aborted_upload_is_gone(&upload("multipart/aborted")).await;
    what_cannot_be_joined(server, &upload("multipart/refused")).await;
    the_sdks_own_checksums(server).await;
}

struct Upload {
    s3: Client,
    bucket: String,
    key: &'static str,
}

impl Upload {
    async fn begin(&self) -> String {
        let create = self.s3.create_multipart_upload().bucket(&self.bucket).key(self.key);
        create.content_type("video/mp4").metadata("a", "1").send().await.unwrap().upload_id.expect("an id")
    }

    async fn part(&self, id: &str, number: i32, body: &[u8]) -> CompletedPart {
        let part = self.s3.upload_part().bucket(&self.bucket).key(self.key).upload_id(id).part_number(number);
        let etag = part.body(body.to_vec().into()).send().await.unwrap().e_tag;
        CompletedPart::builder().part_number(number).set_e_tag(etag).build()
    }

    fn complete(
        &self,
        id: &str,
        parts: &[CompletedPart],
    ) -> aws_sdk_s3::operation::complete_multipart_upload::builders::CompleteMultipartUploadFluentBuilder {
        let parts = CompletedMultipartUpload::builder().set_parts(Some(parts.to_vec())).build();
        self.s3.complete_multipart_upload().bucket(&self.bucket).key(self.key).upload_id(id).multipart_upload(parts)
    }
}

async fn parts_are_joined(upload: &Upload) {
    let Upload { s3, bucket, key } = upload;
    put(s3, bucket, key, b"old").await;
    let id = upload.begin().await;
    let body = bytes(2 * PART_BYTES + 1234);
    let pieces: Vec<&[u8]> = body.chunks(PART_BYTES).collect();
    // Parts may come in any order, and the last upload of a number counts.
    let three = upload.part(&id, 3, pieces[2]).await;
    upload.part(&id, 1, b"replaced").await;
    let one = upload.part(&id, 1, pieces[0]).await;
    let two = upload.part(&id, 2, pieces[1]).await;
    assert_eq!(get(s3, bucket, key).await, b"old", "nothing shows before it is complete");

    let listed = s3.list_parts().bucket(bucket).key(*key).upload_id(&id).send().await.unwrap();
    let listed: Vec<_> = listed.parts().iter().map(|part| (part.part_number, part.size, part.e_tag.clone())).collect();
    let expected = [(&one, PART_BYTES), (&two, PART_BYTES), (&three, 1234)];
    assert_eq!(listed, expected.map(|(part, size)| (part.part_number, Some(size as i64), part.e_tag.clone())));
    let uploads = s3.list_multipart_uploads().bucket(bucket).prefix(*key).send().await.unwrap();
    assert_eq!(uploads.uploads().iter().filter_map(|one| one.upload_id()).collect::<Vec<_>>(), [&id]);

    let etag = upload.complete(&id, &[one, two, three]).send().await.unwrap().e_tag.unwrap();
    assert!(etag.trim_matches('"').ends_with("-3"), "{etag}");
    assert!(get(s3, bucket, key).await == body, "the parts came back different");
    let head = s3.head_object().bucket(bucket).key(*key).send().await.unwrap();
    assert_eq!((head.e_tag(), head.content_type()), (Some(etag.as_str()), Some("video/mp4")));
    assert_eq!(head.metadata().unwrap()["a"], "1");
    let uploads = s3.list_multipart_uploads().bucket(bucket).prefix(*key).send().await.unwrap();
    assert!(uploads.uploads().is_empty());
}

async fn a_part_may_be_a_copy(upload: &Upload) {
    let Upload { s3, bucket, key } = upload;
    let from = bytes(PART_BYTES + 100);
    put(s3, bucket, "multipart/from", &from).await;
    let id = upload.begin().await;
    let mut parts = Vec::new();
    for (number, range) in [(1, format!("bytes=0-{}", PART_BYTES - 1)), (2, format!("bytes=50-{}", PART_BYTES + 99))] {
        let copy = s3.upload_part_copy().bucket(bucket).key(*key).upload_id(&id).part_number(number);
        let copy = copy.copy_source(format!("{bucket}/multipart/from")).copy_source_range(range).send().await.unwrap();
        let etag = copy.copy_part_result.expect("a result").e_tag;
        parts.push(CompletedPart::builder().part_number(number).set_e_tag(etag).build());
    }
    parts.push(upload.part(&id, 3, b"end").await);
    upload.complete(&id, &parts).send().await.unwrap();
    assert!(get(s3, bucket, key).await == [&from[..PART_BYTES], &from[50..], b"end"].concat());
}

async fn an_aborted_upload_is_gone(upload: &Upload) {
    let Upload { s3, bucket, key } = upload;
    let id = upload.begin().await;
    let part = upload.part(&id, 1, b"x").await;
    s3.abort_multipart_upload().bucket(bucket).key(*key).upload_id(&id).send().await.unwrap();
    assert_eq!(refusal(upload.complete(&id, &[part]).send().await), (404, "NoSuchUpload".to_owned()));
    let part = s3.upload_part().bucket(bucket).key(*key).upload_id(&id).part_number(1).body(b"x".to_vec().into());
    assert_eq!(refusal(part.send().await), (404, "NoSuchUpload".to_owned()));
    assert_eq!(refusal(s3.head_object().bucket(bucket).key(*key).send().await).0, 404);
}

async fn what_cannot_be_joined(server: &Endpoint, upload: &Upload) {
    let id = upload.begin().await;
    let small = upload.part(&id, 1, b"small").await;
    let last = upload.part(&id, 2, b"last").await;
    let other = CompletedPart::builder().part_number(1).e_tag("\"00000000000000000000000000000000\"").build();
    assert_eq!(refusal(upload.complete(&id, &[other]).send().await), (400, "InvalidPart".to_owned()));
    let missing = CompletedPart::builder().part_number(9).set_e_tag(small.e_tag.clone()).build();
    assert_eq!(refusal(upload.complete(&id, &[missing]).send().await), (400, "InvalidPart".to_owned()));
    let swapped = upload.complete(&id, &[last.clone(), small.clone()]).send().await;
    assert_eq!(refusal(swapped), (400, "InvalidPartOrder".to_owned()));
    let joined = upload.complete(&id, &[small, last]).send().await;
    if server.capabilities.part_size_enforced {
        assert_eq!(refusal(joined), (400, "EntityTooSmall".to_owned()));
    } else {
        assert!(
            joined.is_ok(),
            "the server has learnt the least size of a part: say so in its capabilities: {joined:?}"
        );
    }
}

/// Parts with checksums of an upload that was begun without announcing any, as SDKs send them by default.
async fn the_sdks_own_checksums(server: &Endpoint) {
    let s3 = server.sdk_with(server.secret, RequestChecksumCalculation::WhenSupported);
    let unannounced = Upload { s3: server.sdk(), bucket: server.bucket.clone(), key: "multipart/checksums" };
    let id = unannounced.begin().await;
    let upload = Upload { s3, ..unannounced };
    let part = upload.s3.upload_part().bucket(&upload.bucket).key(upload.key).upload_id(&id).part_number(1);
    let part = part.body(bytes(100).into()).send().await.unwrap();
    assert!(part.checksum_crc32().is_some());
    let named = CompletedPart::builder().part_number(1).set_e_tag(part.e_tag).set_checksum_crc32(part.checksum_crc32);
    let joined = upload.complete(&id, &[named.build()]).send().await;
    if server.capabilities.part_checksums {
        joined.unwrap();
        assert!(get(&upload.s3, &upload.bucket, upload.key).await == bytes(100));
    } else {
        assert!(joined.is_err(), "the server has learnt checksums of parts: say so in its capabilities");
    }
}
