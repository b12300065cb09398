//! Tlspipe connects its standard input and output to a TLS server, with rustls, and ends its direction well when its input ends.
//!
//!     tlspipe 1.2|1.3 AUTHORITY.pem NAME ADDRESS

use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use std::{env, error::Error, process, sync::Arc};
use tokio::io::{copy_bidirectional, join, stdin, stdout};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    // An end of main would wait for a read of the standard input.
    if let Err(e) = run().await {
        eprintln!("tlspipe: {e}");
        process::exit(1);
    }
    process::exit(0);
}

async fn run() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().collect();
    let [_, version, authority, name, address] = args.as_slice() else {
        return Err("tlspipe 1.2|1.3 AUTHORITY.pem NAME ADDRESS".into());
    };
    let version = match version.as_str() {
        "1.2" => &rustls::version::TLS12,
        "1.3" => &rustls::version::TLS13,
        other => return Err(format!("unknown version {other}").into()),
    };
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority)?)?;
    let config = rustls::ClientConfig::builder_with_protocol_versions(&[version]).with_root_certificates(roots).with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let raw = tokio::net::TcpStream::connect(address).await?;
    let mut server = connector.connect(ServerName::try_from(name.clone())?, raw).await?;
    copy_bidirectional(&mut join(stdin(), stdout()), &mut server).await?;
    Ok(())
}
