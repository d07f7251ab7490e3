//! The trusted authority and the identity of a client, from options, files and the environment.
//!
//! Secrets are read only here, never from an argument, and are never printed.

pub(crate) mod certs;
mod files;
pub(crate) mod token;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use paxoslease_client::{Builder, Tls, TlsError};
use paxoslease_node::Exposure;

use crate::args::TrustArgs;
use crate::client::Failure;

/// The variable with the token, for use without a file.
pub(crate) const TOKEN_VARIABLE: &str = "PAXOSLEASE_TOKEN";
pub(crate) const TOKEN_FILE_VARIABLE: &str = "PAXOSLEASE_TOKEN_FILE";

/// The longest token, in bytes.
const TOKEN_LEN_MAX: usize = 1024;

/// The trusted authority and the identity of a client.
pub(crate) struct Trust {
    pub(crate) tls: Option<Tls>,
    pub(crate) token: Option<String>,
    pub(crate) token_in_clear: bool,
}

impl Trust {
    /// # Errors
    /// Names the file or variable that cannot be used, without its content.
    pub(crate) fn load(args: &TrustArgs) -> Result<Self, Failure> {
        let tls = tls(args).map_err(|error| Failure::usage(error.to_string()))?;
        let token = match (&args.token_file, std::env::var_os(TOKEN_VARIABLE)) {
            (Some(path), _) => Some(token_in(path)?),
            (None, Some(text)) if !text.is_empty() => Some(
                checked(text.into_encoded_bytes())
                    .map_err(|problem| Failure::usage(format!("{TOKEN_VARIABLE}: {problem}")))?,
            ),
            (None, _) => None,
        };
        Ok(Self { tls, token, token_in_clear: args.insecure_plaintext })
    }

    pub(crate) fn apply(self, mut builder: Builder) -> Builder {
        if let Some(tls) = self.tls {
            builder = builder.tls(tls);
        }
        if let Some(token) = self.token {
            builder = builder.token(token);
        }
        if self.token_in_clear { builder.token_in_clear() } else { builder }
    }
}

fn tls(args: &TrustArgs) -> Result<Option<Tls>, TlsError> {
    let TrustArgs { tls_ca, tls_cert, tls_key, tls_server_name, .. } = args;
    let Some(ca) = tls_ca else { return Ok(None) };
    let mut tls = Tls::from_ca_file(ca)?;
    if let (Some(cert), Some(key)) = (tls_cert, tls_key) {
        tls = tls.with_identity_files(cert, key)?;
    }
    if let Some(name) = tls_server_name {
        tls = tls.with_server_name(name)?;
    }
    Ok(Some(tls))
}

/// The token in a file that no other user can read or change. A pipe has no mode that matters.
fn token_in(path: &Path) -> Result<String, Failure> {
    let refuse =
        |problem: String| Failure::usage(format!("--token-file {}: {problem}", path.display()));
    let unreadable = |error: io::Error| refuse(error.to_string());
    let file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if metadata.is_file()
        && let Some(Exposure { problem, remedy }) = Exposure::of(&metadata, path)
    {
        return Err(refuse(format!("the token is not secret: {problem}; {remedy}")));
    }
    let mut bytes = Vec::new();
    file.take(TOKEN_LEN_MAX as u64 + 3).read_to_end(&mut bytes).map_err(unreadable)?;
    checked(bytes).map_err(|problem| refuse(problem.to_owned()))
}

/// A token, perhaps followed by a line break.
fn checked(mut bytes: Vec<u8>) -> Result<String, &'static str> {
    while bytes.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        bytes.pop();
    }
    if bytes.is_empty() {
        return Err("it contains no token; make one with `paxoslease token`");
    }
    if bytes.len() > TOKEN_LEN_MAX || !bytes.iter().all(u8::is_ascii_graphic) {
        return Err("a token is one line of up to 1024 ASCII characters without spaces");
    }
    Ok(String::from_utf8(bytes).expect("ASCII"))
}

/// The environment for the command of a lock, so that it can talk to the same cell. `None` removes
/// a variable.
pub(crate) fn environment(
    args: &TrustArgs,
    pass_token: bool,
) -> Vec<(&'static str, Option<OsString>)> {
    let TrustArgs { tls_ca, tls_cert, tls_key, tls_server_name, token_file, .. } = args;
    let path = |path: &Option<std::path::PathBuf>| path.clone().map(OsString::from);
    let mut variables = vec![
        ("PAXOSLEASE_TLS_CA", path(tls_ca)),
        ("PAXOSLEASE_TLS_CERT", path(tls_cert)),
        ("PAXOSLEASE_TLS_KEY", path(tls_key)),
        ("PAXOSLEASE_TLS_SERVER_NAME", tls_server_name.clone().map(OsString::from)),
    ];
    if pass_token {
        variables.push((TOKEN_FILE_VARIABLE, path(token_file)));
    } else {
        variables.extend([(TOKEN_VARIABLE, None), (TOKEN_FILE_VARIABLE, None)]);
    }
    variables
}
