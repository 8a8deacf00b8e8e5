//! Servers under test, each started for one test and ended with it, and their capabilities.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use aws_credential_types::Credentials;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::{BehaviorVersion, Region, RequestChecksumCalculation};
use stokehold_objects::store::{self, StoreConfig};
use stokehold_objects::{Objects, ObjectsConfig};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Address, credentials and capabilities of a server.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub(crate) url: String,
    pub(crate) region: &'static str,
    pub(crate) bucket: String,
    pub(crate) access_key_id: &'static str,
    pub(crate) secret: &'static str,
    pub(crate) capabilities: Capabilities,
}

/// Differences between servers. The suite asserts both sides of each, so that it also detects a server that gains a
/// capability.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Capabilities {
    /// Supports `If-Match` and `If-None-Match` on PUT. Without it, every writer of a race wins.
    pub(crate) conditional_writes: bool,
    /// The status of an expired presigned URL.
    pub(crate) expired_status: u16,
    /// Joins parts by the checksums that SDKs add by themselves, even if the upload was begun without announcing them.
    pub(crate) part_checksums: bool,
    /// Refuses to join parts that are too small (S3: 5 MiB, except for the last).
    pub(crate) part_size_enforced: bool,
}

impl Endpoint {
    pub(crate) fn config(&self) -> ObjectsConfig {
        ObjectsConfig {
            endpoint_url: Some(self.url.clone()),
            public_url: None,
            region: self.region.to_owned(),
            bucket: self.bucket.clone(),
            access_key_id: Some(self.access_key_id.to_owned()),
            secret_access_key: Some(self.secret.into()),
            path_style: true,
        }
    }

    pub(crate) async fn objects(&self) -> Objects {
        Objects::connect(self.config()).await.unwrap()
    }

    /// The AWS SDK with its default settings, and checksums where S3 requires them.
    pub(crate) fn sdk(&self) -> Client {
        self.sdk_with(self.secret, RequestChecksumCalculation::WhenRequired)
    }

    pub(crate) fn sdk_with(&self, secret: &str, checksums: RequestChecksumCalculation) -> Client {
        let config = aws_sdk_s3::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .endpoint_url(&self.url)
            .region(Region::new(self.region))
            .credentials_provider(Credentials::new(self.access_key_id, secret, None, None, "test"))
            .force_path_style(true)
            .request_checksum_calculation(checksums);
        Client::from_conf(config.build())
    }
}

/// Our store in this process.
pub(crate) struct StoreServer {
    pub(crate) endpoint: Endpoint,
    pub(crate) dir: PathBuf,
    _temp: Option<TempDir>,
    stop: oneshot::Sender<()>,
    served: JoinHandle<Result<(), stokehold_objects::Error>>,
}

impl StoreServer {
    pub(crate) async fn stop(self) -> Option<TempDir> {
        self.stop.send(()).unwrap();
        self.served.await.unwrap().unwrap();
        self._temp
    }
}

/// Our store, empty except for its bucket.
pub(crate) async fn store() -> StoreServer {
    let temp = TempDir::new().unwrap();
    let mut server = store_in(temp.path()).await;
    server._temp = Some(temp);
    server.endpoint.objects().await.ensure_bucket().await.unwrap();
    server
}

/// Our store over an existing folder.
pub(crate) async fn store_in(dir: &Path) -> StoreServer {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = store_endpoint(&format!("http://{}", listener.local_addr().unwrap()));
    let (stop, stopped) = oneshot::channel();
    let config = store_config(dir);
    let served = tokio::spawn(async move { store::serve(listener, config, async { drop(stopped.await) }).await });
    StoreServer { endpoint, dir: dir.to_owned(), _temp: None, stop, served }
}

pub(crate) fn store_config(dir: &Path) -> StoreConfig {
    StoreConfig { dir: dir.to_owned(), access_key_id: "test".to_owned(), secret_access_key: "a test's secret".into() }
}

pub(crate) fn store_endpoint(url: &str) -> Endpoint {
    Endpoint {
        url: url.to_owned(),
        region: "us-east-1",
        bucket: "conformance".to_owned(),
        access_key_id: "test",
        secret: "a test's secret",
        capabilities: Capabilities {
            conditional_writes: true,
            expired_status: 403,
            part_checksums: true,
            part_size_enforced: true,
        },
    }
}

/// A Garage process.
pub(crate) struct GarageServer {
    pub(crate) endpoint: Endpoint,
    child: Child,
    _dir: TempDir,
}

impl Drop for GarageServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A Garage of one node with one bucket, from `STOKE_TEST_GARAGE` or where `make test-garage` puts it.
pub(crate) fn garage() -> GarageServer {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/bin/garage");
    let binary = std::env::var_os("STOKE_TEST_GARAGE").map_or(installed, PathBuf::from);
    assert!(
        binary.is_file(),
        "there is no Garage at {}: run `make test-garage`, or point STOKE_TEST_GARAGE at a garage 2.5 binary",
        binary.display()
    );
    for _ in 0..10 {
        if let Some(server) = start_garage(&binary) {
            return server;
        }
        // Another process took a port between the check and the bind; the next attempt uses others.
    }
    panic!("Garage did not come up on ten pairs of ports");
}

fn start_garage(binary: &Path) -> Option<GarageServer> {
    let dir = TempDir::new().unwrap();
    let (api, rpc) = (free_port(), free_port());
    let config = dir.path().join("garage.toml");
    let path = dir.path().display();
    let settings = format!(
        r#"
        metadata_dir = "{path}/meta"
        data_dir = "{path}/data"
        db_engine = "sqlite"
        replication_factor = 1
        rpc_bind_addr = "127.0.0.1:{rpc}"
        rpc_public_addr = "127.0.0.1:{rpc}"
        rpc_secret = "{secret}"
        [s3_api]
        s3_region = "garage"
        api_bind_addr = "127.0.0.1:{api}"
        "#,
        secret = "00".repeat(32),
    );
    std::fs::write(&config, settings).unwrap();
    let endpoint = Endpoint {
        url: format!("http://127.0.0.1:{api}"),
        region: "garage",
        bucket: "conformance".to_owned(),
        access_key_id: "GK000102030405060708090a0b",
        secret: "000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f",
        // Each was observed on Garage 2.5.0.
        capabilities: Capabilities {
            conditional_writes: false,
            expired_status: 400,
            part_checksums: false,
            part_size_enforced: false,
        },
    };
    let mut child = Command::new(binary)
        .arg("-c")
        .arg(&config)
        .args(["server", "--single-node", "--default-bucket"])
        .env("GARAGE_DEFAULT_ACCESS_KEY", endpoint.access_key_id)
        .env("GARAGE_DEFAULT_SECRET_KEY", endpoint.secret)
        .env("GARAGE_DEFAULT_BUCKET", &endpoint.bucket)
        .env("RUST_LOG", "garage=info,garage_api_common=info")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let log = BufReader::new(child.stderr.take().unwrap());
    let server = GarageServer { endpoint, child, _dir: dir };
    let mut lines = log.lines();
    lines.by_ref().map_while(Result::ok).find(|line| line.contains("S3 API server listening"))?;
    // Keeps reading, because a full pipe would block the server.
    std::thread::spawn(move || lines.for_each(drop));
    Some(server)
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
