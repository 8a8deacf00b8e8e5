//! Objects that are too large for memory: read in ranges, written in parts.

use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart};
use bytes::{Bytes, BytesMut};

use crate::client::{ATTEMPT_TIMEOUT, ATTEMPTS, check_key, collect, disposition, pause, status};
use crate::{Error, Objects};

/// Size of the first parts, well above S3's minimum of 5 MiB. Memory holds one part and the data that follows it.
const PART_BYTES: usize = 8 << 20;

/// Number of parts after which the part size doubles. S3 accepts 10,000 parts; in this way 300 GB fit.
const PARTS_PER_SIZE: usize = 2_500;

impl Objects {
    /// Reads at most `max_bytes` of an object from byte `from` on; empty at its end, `None` if the object does not
    /// exist.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Unavailable`].
    pub async fn get_range(&self, key: &str, from: u64, max_bytes: u64) -> Result<Option<Bytes>, Error> {
        check_key(key)?;
        if max_bytes == 0 {
            return Ok(Some(Bytes::new()));
        }
        let range = format!("bytes={from}-{}", from.saturating_add(max_bytes - 1));
        let mut attempt = 1;
        loop {
            let get = self.client.get_object().bucket(&self.bucket).key(key).range(&range);
            let answer = match get.send().await {
                Ok(answer) => answer,
                Err(error) if error.as_service_error().is_some_and(|e| e.is_no_such_key()) => return Ok(None),
                // The range starts at or after the end.
                Err(error) if status(&error) == Some(416) => return Ok(Some(Bytes::new())),
                Err(error) => return Err(Error::sdk("read a part of an object")(error)),
            };
            match tokio::time::timeout(ATTEMPT_TIMEOUT, collect(answer, key, max_bytes)).await {
                Ok(Err(Error::Unavailable { .. })) | Err(_) if attempt < ATTEMPTS => {}
                Ok(done) => return done.map(Some),
                Err(late) => {
                    return Err(Error::Unavailable { step: "read a part of an object", source: late.into() });
                }
            }
            tokio::time::sleep(pause(attempt)).await;
            attempt += 1;
        }
    }

    /// Starts to write an object whose length is not known yet. The object does not exist before [`Upload::finish`].
    #[must_use]
    pub fn upload(&self, key: &str, content_type: &str) -> Upload {
        Upload {
            objects: self.clone(),
            key: key.to_owned(),
            content_type: content_type.to_owned(),
            disposition: None,
            pending: BytesMut::new(),
            begun: None,
        }
    }
}

/// An object that is being written. Dropping it unfinished aborts the upload if this process still can; otherwise the
/// bucket's rule for abandoned uploads deletes it.
#[derive(Debug)]
pub struct Upload {
    objects: Objects,
    key: String,
    content_type: String,
    disposition: Option<String>,
    pending: BytesMut,
    begun: Option<Begun>,
}

#[derive(Debug)]
struct Begun {
    id: String,
    parts: Vec<CompletedPart>,
}

impl Upload {
    /// Sets the file name of the download.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.disposition = Some(disposition(name));
        self
    }

    /// Adds bytes. Waits for S3 whenever a part is full.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Unavailable`]: abort the upload.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut rest = bytes;
        loop {
            let room = self.part_bytes() - self.pending.len();
            if rest.len() < room {
                self.pending.extend_from_slice(rest);
                return Ok(());
            }
            let (now, later) = rest.split_at(room);
            self.pending.extend_from_slice(now);
            self.send_part().await?;
            rest = later;
        }
    }

    /// Creates the object. When this returns, the object is durable.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Unavailable`]: whether the object exists is unknown.
    pub async fn finish(mut self) -> Result<(), Error> {
        if self.begun.is_none() {
            let body = self.pending.split().freeze();
            let disposition = self.disposition.take();
            return self.objects.put_as(&self.key, body, &self.content_type, disposition).await;
        }
        if !self.pending.is_empty() {
            self.send_part().await?;
        }
        // Taken last, so that an upload that could not be completed is aborted on drop.
        let Some(begun) = &self.begun else { return Ok(()) };
        let parts = CompletedMultipartUpload::builder().set_parts(Some(begun.parts.clone())).build();
        let client = &self.objects.client;
        let complete = client.complete_multipart_upload().bucket(&self.objects.bucket).key(&self.key);
        let complete = complete.upload_id(&begun.id).multipart_upload(parts);
        complete.send().await.map_err(Error::sdk("complete an upload"))?;
        self.begun = None;
        Ok(())
    }

    fn part_bytes(&self) -> usize {
        let sent = self.begun.as_ref().map_or(0, |begun| begun.parts.len());
        PART_BYTES << (sent / PARTS_PER_SIZE).min(3)
    }

    async fn send_part(&mut self) -> Result<(), Error> {
        let Objects { client, bucket, .. } = &self.objects;
        if self.begun.is_none() {
            check_key(&self.key)?;
            let create = client.create_multipart_upload().bucket(bucket).key(&self.key);
            let create = create.content_type(&self.content_type).set_content_disposition(self.disposition.clone());
            let created = create.send().await.map_err(Error::sdk("begin an upload"))?;
            let id = created.upload_id.ok_or_else(|| Error::Refused {
                step: "begin an upload",
                code: "no upload id".to_owned(),
                source: "the server returned none".into(),
            })?;
            self.begun = Some(Begun { id, parts: Vec::new() });
        }
        let Some(begun) = &mut self.begun else { return Ok(()) };
        let number = i32::try_from(begun.parts.len() + 1).unwrap_or(i32::MAX);
        let body = self.pending.split().freeze();
        let part = client.upload_part().bucket(bucket).key(&self.key).upload_id(&begun.id).part_number(number);
        let sent = part.body(body.into()).send().await.map_err(Error::sdk("write a part of an object"))?;
        begun.parts.push(CompletedPart::builder().part_number(number).set_e_tag(sent.e_tag).build());
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let (Some(begun), Ok(runtime)) = (self.begun.take(), tokio::runtime::Handle::try_current()) else { return };
        let (objects, key) = (self.objects.clone(), std::mem::take(&mut self.key));
        runtime.spawn(async move {
            let abort = objects.client.abort_multipart_upload().bucket(&objects.bucket).key(&key).upload_id(begun.id);
            if let Err(error) = abort.send().await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    key,
                    "an unfinished upload could not be aborted"
                );
            }
        });
    }
}
