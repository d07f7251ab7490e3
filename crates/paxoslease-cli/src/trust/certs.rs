//! `paxoslease certs`: an authority for a small cell, and certificates that it signs.
//!
//! New and existing certificates are checked by the same library that nodes and clients use.
//! Deliberately lacks what a large site needs: intermediates, revocation, another authority. The
//! authority's name follows from its key, so nothing is read from its certificate.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use paxoslease_client::Tls;
use paxoslease_node::Role;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose as Purpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use rustls::RootCertStore;
use rustls::client::verify_server_name;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use serde_json::{Value, json};

use super::files::{self, PUBLIC, SECRET};
use crate::args::{CertsArgs, Host};
use crate::client::Failure;
use crate::{Verdict, output};

const DAY: Duration = Duration::from_secs(24 * 3600);
const AUTHORITY_LIFE: Duration = Duration::from_secs(3650 * 24 * 3600);
/// For machines whose clocks are a little behind.
const HEAD_START: Duration = Duration::from_secs(3600);

/// Hosts at which clients reach the nodes of a test.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

pub(crate) fn run(args: CertsArgs) -> anyhow::Result<Verdict> {
    let subjects = subjects(&args)?;
    let folder = std::path::absolute(&args.out).context("the folder has no path")?;
    files::create_folder(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    files::check_owner(&folder)?;
    let authority = Authority::open(&folder)?;
    let mut made = Vec::new();
    for subject in &subjects {
        made.push(authority.certify(&folder, subject, &args)?);
    }
    if args.json {
        return output::to_stdout(&format!("{}\n", json(&authority, &made)))
            .map(|()| Verdict::Well);
    }
    output::to_stdout(&text(&authority, &made))?;
    output::to_stderr(&format!(
        "for development and small cells: keep {} off the nodes, or a node could impersonate others\n",
        authority.key_path.display()
    ));
    Ok(Verdict::Well)
}

struct Subject {
    /// The prefix of its file names.
    name: String,
    kind: Kind,
}

enum Kind {
    Node {
        id: u16,
        role: Role,
        /// Its name among nodes, and the hosts at which clients reach it.
        names: Vec<String>,
    },
    Client,
}

impl Subject {
    fn node(cell: &str, id: u16, role: Role, hosts: &[Host]) -> Result<Self, Failure> {
        let meant = |host: &&Host| host.node.is_none_or(|node| node == id);
        let given = hosts.iter().filter(meant).map(|host| host.name.clone());
        let own = paxoslease_node::Tls::node_name(cell, id, role);
        let mut names = vec![own.map_err(|error| Failure::usage(error.to_string()))?];
        for name in LOOPBACK.iter().map(ToString::to_string).chain(given) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let name = match role {
            Role::Member => format!("node-{id}"),
            Role::Proposer => format!("proposer-{id}"),
        };
        Ok(Self { name, kind: Kind::Node { id, role, names } })
    }

    fn params(&self, days: u16) -> anyhow::Result<CertificateParams> {
        let (names, purposes) = match &self.kind {
            // Nodes connect to each other, so each is both a client and a server.
            Kind::Node { names, .. } => {
                (names.clone(), vec![Purpose::ServerAuth, Purpose::ClientAuth])
            }
            Kind::Client => (Vec::new(), vec![Purpose::ClientAuth]),
        };
        let mut params = CertificateParams::new(names).context("a name cannot be certified")?;
        params.distinguished_name.push(DnType::CommonName, self.name.as_str());
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = purposes;
        limit(&mut params, DAY * u32::from(days));
        Ok(params)
    }
}

fn subjects(args: &CertsArgs) -> Result<Vec<Subject>, Failure> {
    let is_told = !args.node.is_empty() || !args.proposers.is_empty() || !args.clients.is_empty();
    let count = args.nodes.unwrap_or(if is_told { 0 } else { 3 });
    let nodes: BTreeSet<u16> = (1..=count).chain(args.node.iter().copied()).collect();
    let proposers: BTreeSet<u16> = args.proposers.iter().copied().collect();
    if let Some(id) = nodes.intersection(&proposers).next() {
        let problem = format!(
            "--proposer {id}: a member has this id; give the proposer an id that no member ever had"
        );
        return Err(Failure::usage(problem));
    }
    for Host { node, name } in &args.hosts {
        let mut ids = nodes.union(&proposers);
        if !ids.any(|id| node.is_none_or(|node| node == *id)) {
            let missing = node.map_or("--nodes 3".to_owned(), |node| format!("--node {node}"));
            let problem = format!("--host {name}: its node gets no certificate; add {missing}");
            return Err(Failure::usage(problem));
        }
    }
    let is_node = |name: &str| {
        let is_prefixed = ["node-", "proposer-"].iter().any(|prefix| name.starts_with(prefix));
        name == "ca" || is_prefixed || name.ends_with("-key")
    };
    if let Some(name) = args.clients.iter().find(|name| is_node(name)) {
        let problem = format!(
            "--client {name}: its files could be mistaken for those of a node or the authority; choose another name"
        );
        return Err(Failure::usage(problem));
    }
    let clients = args.clients.iter().collect::<BTreeSet<_>>().into_iter();
    let clients = clients.map(|name| Subject { name: name.clone(), kind: Kind::Client });
    let nodes = nodes.into_iter().map(|id| (id, Role::Member));
    let nodes = nodes.chain(proposers.into_iter().map(|id| (id, Role::Proposer)));
    let nodes = nodes.map(|(id, role)| Subject::node(&args.cell, id, role, &args.hosts));
    nodes.chain(clients.map(Ok)).collect()
}

/// Valid from a little before now, for this long.
fn limit(params: &mut CertificateParams, life: Duration) {
    let now = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(UnixTime::now().as_secs());
    params.not_before = now - HEAD_START;
    params.not_after = now + life;
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    path: PathBuf,
    key_path: PathBuf,
    roots: Arc<RootCertStore>,
    is_new: bool,
}

/// A certificate and its key, and their subject.
struct Made<'a> {
    subject: &'a Subject,
    cert: PathBuf,
    key: PathBuf,
    is_new: bool,
}

impl Authority {
    /// The authority in this folder; a new one if there is none.
    fn open(folder: &Path) -> anyhow::Result<Self> {
        let (path, key_path) = (folder.join("ca.pem"), folder.join("ca-key.pem"));
        let is_new = match (path.exists(), key_path.exists()) {
            (false, false) => true,
            (true, true) => false,
            (has_cert, _) => {
                let (one, other) = if has_cert { (&path, &key_path) } else { (&key_path, &path) };
                return Err(anyhow!(
                    "{} exists without {}: restore it, or use another folder",
                    one.display(),
                    other.display()
                ));
            }
        };
        let key = if is_new {
            KeyPair::generate().context("cannot make a key")?
        } else {
            files::check_owner(&path)?;
            files::check_owner(&key_path)?;
            KeyPair::from_pem(&read(&key_path)?)
                .map_err(|_| anyhow!("{} is not a key that can sign", key_path.display()))?
        };
        let params = authority_params(&key);
        if is_new {
            let certificate = params.self_signed(&key).context("cannot sign")?;
            write(&key_path, SECRET, &key.serialize_pem(), false)?;
            write(&path, PUBLIC, &certificate.pem(), false)?;
        }
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_slice(read(&path)?.as_bytes());
        let root = certificate.map_err(|_| anyhow!("{} is not a certificate", path.display()))?;
        roots.add(root).with_context(|| format!("{} cannot be used", path.display()))?;
        let (issuer, roots) = (Issuer::new(params, key), Arc::new(roots));
        Ok(Self { issuer, path, key_path, roots, is_new })
    }

    /// Makes what is missing, or everything with `--force`, and checks that it can be used.
    fn certify<'a>(
        &self,
        folder: &Path,
        subject: &'a Subject,
        args: &CertsArgs,
    ) -> anyhow::Result<Made<'a>> {
        let name = &subject.name;
        let (cert, key) = (format!("{name}.pem"), format!("{name}-key.pem"));
        let (cert, key) = (folder.join(cert), folder.join(key));
        let is_new = args.force || !cert.exists() && !key.exists();
        if is_new {
            let pair = KeyPair::generate().context("cannot make a key")?;
            let params = subject.params(args.days)?;
            let certificate = params.signed_by(&pair, &self.issuer).context("cannot sign")?;
            write(&key, SECRET, &pair.serialize_pem(), args.force)?;
            write(&cert, PUBLIC, &certificate.pem(), args.force)?;
        }
        self.judge(&args.cell, subject, (&cert, &key)).map_err(|problem| {
            let remedy = if is_new {
                format!(
                    "was {} made by `paxoslease certs`? If not, use another folder",
                    self.path.display()
                )
            } else {
                "replace it with --force".to_owned()
            };
            anyhow!("{} cannot be used: {problem}; {remedy}", cert.display())
        })?;
        Ok(Made { subject, cert, key, is_new })
    }

    /// Checks a certificate as nodes and clients do.
    fn judge(
        &self,
        cell: &str,
        subject: &Subject,
        (cert, key): (&Path, &Path),
    ) -> anyhow::Result<()> {
        let certificate = CertificateDer::from_pem_slice(read(cert)?.as_bytes())
            .map_err(|_| anyhow!("it is not a certificate"))?;
        match &subject.kind {
            Kind::Node { id, role, names } => {
                paxoslease_node::Tls::new(cert, key, &self.path).check(cell, *id, *role)?;
                let parsed = ParsedCertificate::try_from(&certificate)?;
                for name in names {
                    verify_server_name(&parsed, &ServerName::try_from(name.as_str())?)?;
                }
            }
            Kind::Client => {
                Tls::from_ca_file(&self.path)?.with_identity_files(cert, key)?;
                let (roots, provider) = (Arc::clone(&self.roots), ring::default_provider());
                WebPkiClientVerifier::builder_with_provider(roots, Arc::new(provider))
                    .build()?
                    .verify_client_cert(&certificate, &[], UnixTime::now())?;
            }
        }
        Ok(())
    }
}

/// The parameters depend only on the key, so the key identifies the authority.
fn authority_params(key: &KeyPair) -> CertificateParams {
    let digits: String =
        key.public_key_raw().iter().skip(1).take(8).map(|byte| format!("{byte:02x}")).collect();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, format!("paxoslease cell {digits}"));
    // It signs nodes and clients, and no other authority.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    limit(&mut params, AUTHORITY_LIFE);
    params
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn write(path: &Path, mode: u32, text: &str, is_replaced: bool) -> anyhow::Result<()> {
    let written = if is_replaced {
        files::replace(path, mode, text)
    } else {
        files::create(path, mode, text)
    };
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// The result for programs.
fn json(authority: &Authority, made: &[Made<'_>]) -> Value {
    let of = |is_meant: fn(&Kind) -> bool| -> Vec<Value> {
        let entry = |Made { subject, cert, key, is_new }: &Made<'_>| {
            let mut entry = json!({"name": subject.name, "cert": cert, "key": key, "made": is_new});
            if let Kind::Node { id, role, names } = &subject.kind {
                entry["node"] = json!(id);
                entry["role"] = json!(role);
                entry["hosts"] = json!(names);
            }
            entry
        };
        made.iter().filter(|made| is_meant(&made.subject.kind)).map(entry).collect()
    };
    json!({
        "ca": {"cert": authority.path, "key": authority.key_path, "made": authority.is_new},
        "nodes": of(|kind| matches!(kind, Kind::Node { .. })),
        "clients": of(|kind| matches!(kind, Kind::Client)),
    })
}

/// The result for people: the configuration of each node, and the options of clients.
fn text(authority: &Authority, made: &[Made<'_>]) -> String {
    let done = |is_new| if is_new { "made" } else { "kept" };
    let ca = authority.path.display();
    let mut text = format!("# {}  {ca}\n", done(authority.is_new));
    for Made { cert, is_new, .. } in made {
        let _ = writeln!(text, "# {}  {}", done(*is_new), cert.display());
    }
    for Made { subject, cert, key, .. } in made {
        let (cert, key) = (cert.display(), key.display());
        match &subject.kind {
            Kind::Node { id, role, .. } => {
                let who = match role {
                    Role::Member => "Node",
                    Role::Proposer => "Proposer",
                };
                let _ = write!(
                    text,
                    "\n# {who} {id} needs these three files, and in its configuration:\n[tls]\n\
                     cert = {cert:?}\nkey = {key:?}\nca = {ca:?}\n\
                     clients = \"server\" # \"mutual\" if clients need a certificate, or \"off\"\n",
                    cert = cert.to_string(),
                    key = key.to_string(),
                    ca = ca.to_string(),
                );
            }
            Kind::Client => {
                let _ = writeln!(
                    text,
                    "\n# {}: paxoslease status --tls-ca {ca} --tls-cert {cert} --tls-key {key}",
                    subject.name
                );
            }
        }
    }
    text
}
