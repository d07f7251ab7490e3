//! `paxoslease token`: makes a random token, and its entry for the nodes' configuration.

use std::fmt::Write as _;
use std::io::{Read as _, stdin};

use anyhow::{Context as _, anyhow};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::files::{self, SECRET};
use super::{TOKEN_LEN_MAX, checked};
use crate::args::TokenArgs;
use crate::client::Failure;
use crate::{Verdict, output};

/// For people, and for programs that scan for leaked secrets.
const PREFIX: &str = "plt_";

pub(crate) fn run(args: TokenArgs) -> anyhow::Result<Verdict> {
    let TokenArgs { name, names, may, out, hash, json } = args;
    let token = if hash { given()? } else { made()? };
    let digest = hex(&Sha256::digest(token.as_bytes()));
    if let Some(path) = &out {
        files::create(path, SECRET, &format!("{token}\n"))
            .with_context(|| format!("cannot write {}; no token was made", path.display()))?;
    }
    let of_file = || Some(out.as_ref()?.file_name()?.to_string_lossy().into_owned());
    let name = name.or_else(of_file);
    // An existing token, or one in a file, need not be printed.
    let shown = (!hash && out.is_none()).then_some(&token);
    if json {
        let mut all = json!({"token_sha256": digest, "names": names, "may": may});
        if let Some(name) = name {
            all["name"] = name.into();
        }
        if let Some(token) = shown {
            all["token"] = token.as_str().into();
        }
        return output::to_stdout(&format!("{all}\n")).map(|()| Verdict::Well);
    }
    let mut text = String::new();
    if let Some(token) = shown {
        let _ = writeln!(
            text,
            "# For the client, as PAXOSLEASE_TOKEN or in a file. It cannot be recovered later:"
        );
        let _ = writeln!(text, "# {token}\n");
    }
    let _ = writeln!(text, "[[access]]");
    if let Some(name) = name {
        let _ = writeln!(text, "name = {}", json!(name));
    }
    let _ = writeln!(text, "token_sha256 = \"{digest}\"");
    let _ = writeln!(text, "names = {}", list(&names));
    let _ = writeln!(text, "may = {}", list(&may));
    output::to_stdout(&text)?;
    output::to_stderr("add this entry to the configuration of every node, then send SIGHUP\n");
    Ok(Verdict::Well)
}

fn given() -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    stdin().take(TOKEN_LEN_MAX as u64 + 3).read_to_end(&mut bytes).context("cannot read stdin")?;
    checked(bytes).map_err(|problem| Failure::usage(format!("stdin: {problem}")).into())
}

/// 256 random bits, as letters and digits.
fn made() -> anyhow::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| anyhow!("no randomness: {error}"))?;
    Ok(format!("{PREFIX}{}", hex(&bytes)))
}

/// JSON writes texts in a form that TOML reads.
fn list(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| json!(text).to_string()).collect();
    format!("[{}]", texts.join(", "))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
