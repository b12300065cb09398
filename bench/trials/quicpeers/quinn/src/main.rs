// A peer of HTTP/3 made with quinn: see the trial quicpeers.
//
//	quicpeer server ADDRESS CERTIFICATE KEY ROOT [ID]
//	quicpeer client ADDRESS CERTIFICATE NAME PATH OUT [BYTES]
//
// A server with an ID, 8 bytes in hexadecimal, writes it into its connection IDs, behind a first byte. A client with BYTES goes on from another socket,
// by active migration, as soon as it has received so many.
use bytes::{Buf, Bytes};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ConnectionId, ConnectionIdGenerator};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use std::io::Write;
use std::{env, error::Error, future::poll_fn, net::UdpSocket, path::Path, sync::Arc, time::Duration};

type Failed = Box<dyn Error + Send + Sync>;

struct Routable([u8; 8]);

impl ConnectionIdGenerator for Routable {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id: [u8; 16] = rand::random();
        id[1..9].copy_from_slice(&self.0);
        ConnectionId::new(&id)
    }
    fn cid_len(&self) -> usize {
        16
    }
    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let all: Vec<String> = env::args().collect();
    let args: Vec<&str> = all.iter().map(String::as_str).collect();
    match args[1..] {
        ["server", address, certificate, key, root] => server(address, certificate, key, root, None).await,
        ["server", address, certificate, key, root, id] => server(address, certificate, key, root, Some(u64::from_str_radix(id, 16)?.to_be_bytes())).await,
        ["client", address, certificate, name, path, out] => client(address, certificate, name, path, out, usize::MAX).await,
        ["client", address, certificate, name, path, out, bytes] => client(address, certificate, name, path, out, bytes.parse()?).await,
        _ => Err("quicpeer server|client ...: see the source".into()),
    }
}

async fn server(address: &str, certificate: &str, key: &str, root: &str, id: Option<[u8; 8]>) -> Result<(), Failed> {
    let mut tls = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from_pem_file(certificate)?], PrivateKeyDer::from_pem_file(key)?)?;
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let config = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    let mut of_endpoint = quinn::EndpointConfig::default();
    if let Some(id) = id {
        of_endpoint.cid_generator(move || Box::new(Routable(id)));
    }
    let endpoint = quinn::Endpoint::new(of_endpoint, Some(config), UdpSocket::bind(address)?, Arc::new(quinn::TokioRuntime))?;
    while let Some(incoming) = endpoint.accept().await {
        let root = root.to_string();
        tokio::spawn(async move {
            if let Err(e) = serve(incoming, root).await {
                eprintln!("{e}");
            }
        });
    }
    Ok(())
}

async fn serve(incoming: quinn::Incoming, root: String) -> Result<(), Failed> {
    let mut http = h3::server::Connection::new(h3_quinn::Connection::new(incoming.await?)).await?;
    while let Some(request) = http.accept().await? {
        let root = root.clone();
        tokio::spawn(async move {
            let answer = async {
                let (request, mut stream) = request.resolve_request().await?;
                while stream.recv_data().await?.is_some() {} // some clients take it for a failure if their end is not read
                let file = tokio::fs::read(Path::new(&root).join(request.uri().path().trim_start_matches('/'))).await?;
                stream.send_response(http::Response::builder().status(200).body(())?).await?;
                stream.send_data(Bytes::from(file)).await?;
                stream.finish().await?;
                Ok::<(), Failed>(())
            };
            if let Err(e) = answer.await {
                eprintln!("{e}");
            }
        });
    }
    Ok(())
}

async fn client(address: &str, certificate: &str, name: &str, path: &str, out: &str, migrate: usize) -> Result<(), Failed> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate)?)?;
    let mut tls = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let endpoint = quinn::Endpoint::client("127.0.0.1:0".parse()?)?;
    let config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    let connection = endpoint.connect_with(config, address.parse()?, name)?.await?;
    let (mut driver, mut http) = h3::client::new(h3_quinn::Connection::new(connection)).await?;
    tokio::spawn(async move { poll_fn(|cx| driver.poll_close(cx)).await });
    let mut stream = http.send_request(http::Request::get(format!("https://{name}{path}")).body(())?).await?;
    stream.finish().await?;
    let status = stream.recv_response().await?.status();
    if status != 200 {
        return Err(format!("status {status}").into());
    }
    let (mut file, mut got, mut moved) = (std::fs::File::create(out)?, 0, false);
    while let Some(mut data) = stream.recv_data().await? {
        got += data.remaining();
        while data.has_remaining() {
            let chunk = data.chunk();
            file.write_all(chunk)?;
            let n = chunk.len();
            data.advance(n);
        }
        if got >= migrate && !moved {
            endpoint.rebind(UdpSocket::bind("127.0.0.1:0")?)?;
            moved = true;
        }
    }
    Ok(())
}
