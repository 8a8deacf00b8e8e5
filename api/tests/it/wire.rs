//! A connection between the API and its dependencies, which a test can cut and restore.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use stokehold_api::Config;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// A connection to the object store that can be cut.
pub(crate) struct Wire {
    pub(crate) address: SocketAddr,
    cut: Arc<Mutex<Option<CancellationToken>>>,
}

impl Wire {
    /// Inserts the connection between the API of a configuration and its object store.
    pub(crate) fn before_objects(config: &mut Config) -> Self {
        let target = config.s3.endpoint_url.take().unwrap().replace("http://", "");
        let wire = Self::start(std::net::TcpListener::bind("127.0.0.1:0").unwrap(), target);
        config.s3.endpoint_url = Some(format!("http://{}", wire.address));
        wire
    }

    /// Connects to a `target` that is given later.
    pub(crate) fn start(listener: std::net::TcpListener, target: String) -> Self {
        let address = listener.local_addr().unwrap();
        let cut = Arc::new(Mutex::new(Some(CancellationToken::new())));
        let open = cut.clone();
        listener.set_nonblocking(true).unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let Some(cut) = open.lock().unwrap().clone() else { continue };
                let target = target.clone();
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(target).await.unwrap();
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                        () = cut.cancelled() => {}
                    }
                });
            }
        });
        Self { address, cut }
    }

    pub(crate) fn cut(&self) {
        if let Some(cut) = self.cut.lock().unwrap().take() {
            cut.cancel();
        }
    }

    pub(crate) fn mend(&self) {
        *self.cut.lock().unwrap() = Some(CancellationToken::new());
    }
}
