//! What users install: a Debian package, an image, a tarball, a list of what is in them, and the
//! Python package.
//!
//! All have the same stripped binary, and the manual and completions that it prints. `build` writes
//! them to `target/package`, with their hashes. `tests/packages` installs and runs them.

use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::install;
use crate::invocation::{Invocation, Optimised, cargo, repository_root};

/// The artefacts, and nothing else.
const OUT: &str = "target/package";
/// The content of the tarball; the Debian package and the image take their files from it.
const TREE: &str = "target/packaging/tree";
/// What deploy/container/Dockerfile copies.
const IMAGE: &str = "target/packaging/image";

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Each writes to [`OUT`]. The hashes come last.
const ARTEFACTS: &[fn(&Release) -> anyhow::Result<()>] = &[tarball, debian, image, sbom, python];

/// What makes two builds of one commit the same.
struct Release {
    /// Seconds since 1970 of the commit.
    committed_at: String,
    optimised: Optimised,
}

/// Builds every artefact anew.
pub(crate) fn build(optimised: Optimised) -> anyhow::Result<()> {
    install::ensure("binutils dpkg-dev deb cyclonedx buildah venv")?;
    optimised.set(cargo(["build", "--release", "--locked", "-p", "paxoslease-cli"])).run()?;
    let commit = Invocation::new("git", ["log", "-1", "--format=%ct"]).stdout()?;
    let release = Release { committed_at: commit.trim().to_owned(), optimised };
    run("rm", ["-rf", OUT, "target/packaging"])?;
    run("mkdir", ["-p", OUT])?;
    fill_tree()?;
    ARTEFACTS.iter().try_for_each(|artefact| artefact(&release))?;
    let mut names = Vec::new();
    for file in fs::read_dir(path(OUT))? {
        names.push(file?.file_name().into_string().ok().context("a name that is not text")?);
    }
    names.sort();
    let sums = Invocation::new("env", ["--chdir", OUT, "sha256sum"]).args(names).stdout()?;
    write(&format!("{OUT}/SHA256SUMS"), &sums)?;
    eprintln!("\n{sums}");
    Ok(())
}

/// Installs and runs what [`build`] made.
pub(crate) fn try_out(args: Vec<String>) -> anyhow::Result<()> {
    install::ensure("deb dpkg-dev mmdebstrap nspawn podman crun iproute lintian")?;
    Invocation::new("python3", ["tests/packages/run.py"]).args(args).run()
}

fn fill_tree() -> anyhow::Result<()> {
    let manual = format!("{TREE}/share/man/man1");
    let binary = format!("{TREE}/bin/paxoslease");
    run("mkdir", ["-p", &format!("{TREE}/bin"), &manual])?;
    run("strip", ["-o", &binary, "target/release/paxoslease"])?;
    run("target/release/paxoslease", ["man", "--out", &manual])?;
    run("gzip", ["-9", "--no-name", "--recursive", &manual])?;
    for (shell, place) in [
        ("bash", "bash-completion/completions/paxoslease"),
        ("fish", "fish/vendor_completions.d/paxoslease.fish"),
        ("zsh", "zsh/site-functions/_paxoslease"),
    ] {
        let script = Invocation::new("target/release/paxoslease", ["completions", shell]);
        write(&format!("{TREE}/share/{place}"), &script.stdout()?)?;
    }
    run("cp", ["README.md", "SECURITY.md", "CHANGELOG.md", TREE])?;
    run("cp", ["--recursive", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs", TREE])
}

/// For other systems. The paths are those that docs/operating.md uses.
fn tarball(release: &Release) -> anyhow::Result<()> {
    let name = format!("paxoslease-{VERSION}-x86_64-linux");
    run("cp", ["LICENSE-APACHE", "LICENSE-MIT", TREE])?;
    let files = ["--parents", "--recursive", "deploy/node.toml", "deploy/systemd"];
    let services = ["deploy/grafana", "deploy/kubernetes", "deploy/prometheus"];
    Invocation::new("cp", files).args(services).args([TREE]).run()?;
    let options = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=go-w"];
    Invocation::new("tar", options)
        .args([format!("--mtime=@{}", release.committed_at)])
        .args([format!("--transform=s:^tree:{name}:"), format!("--file={OUT}/{name}.tar")])
        .args(["--create", "--directory=target/packaging", "tree"])
        .run()?;
    run("gzip", ["-9", "--no-name", &format!("{OUT}/{name}.tar")])
}

/// The metadata is in the manifest of the command line.
fn debian(release: &Release) -> anyhow::Result<()> {
    let at = format!("@{}", release.committed_at);
    let date = Invocation::new("env", ["LC_ALL=C", "date", "--utc", "--rfc-email", "--date", &at]);
    let date = date.stdout()?;
    let changelog = format!(
        "paxoslease ({VERSION}-1) unstable; urgency=medium\n\n  * changelog.gz says what \
         changed.\n\n -- The PaxosLease contributors <nobody@paxoslease.invalid>  {date}"
    );
    write("target/packaging/changelog.Debian", &changelog)?;
    run("cp", ["CHANGELOG.md", "target/packaging/changelog"])?;
    run("gzip", ["-9", "--no-name", "target/packaging/changelog"])?;
    let epoch = format!("SOURCE_DATE_EPOCH={}", release.committed_at);
    Invocation::new("env", [&epoch, "cargo", "deb", "--package", "paxoslease-cli", "--no-build"])
        .args(["--quiet", "--output", OUT])
        .run()
}

/// From nothing: the binary, and the C library of this machine. A static C library would be a
/// second build of everything; this one resolves names as everywhere, by /etc/hosts and DNS.
fn image(release: &Release) -> anyhow::Result<()> {
    let root = format!("{IMAGE}/root");
    run("mkdir", ["-p", &format!("{IMAGE}/data"), &format!("{root}/usr/bin")])?;
    run("cp", [&format!("{TREE}/bin/paxoslease"), &format!("{root}/usr/bin")])?;
    let libraries = Invocation::new("ldd", [&format!("{TREE}/bin/paxoslease")]).stdout()?;
    let is_path = |word: &&str| word.starts_with('/');
    for library in libraries.split_whitespace().filter(is_path) {
        run("cp", ["--parents", "--dereference", library, &root])?;
    }
    for package in ["libc6", "libgcc-s1"] {
        run("cp", ["--parents", &format!("/usr/share/doc/{package}/copyright"), &root])?;
    }
    let licences = format!("{root}/usr/share/doc/paxoslease");
    run("mkdir", ["-p", &licences])?;
    run("cp", ["LICENSE-APACHE", "LICENSE-MIT", &licences])?;
    let user = "paxoslease:x:65532:65532::/var/lib/paxoslease:/sbin/nologin\n";
    write(&format!("{root}/etc/passwd"), user)?;
    write(&format!("{root}/etc/group"), "paxoslease:x:65532:\n")?;
    write(&format!("{root}/etc/nsswitch.conf"), "hosts: files dns\n")?;
    run("chmod", ["-R", "u=rwX,go=rX", &root])?;

    // The storage of buildah stays in its folder. It needs no daemon and no file system driver.
    let buildah = || {
        let storage = ["--storage-driver=vfs", "--root=target/packaging/buildah"];
        Invocation::new("buildah", storage).args(["--runroot=target/packaging/buildah-run"])
    };
    let label = |key: &str, value: &str| format!("--label=org.opencontainers.image.{key}={value}");
    // Of the two formats only Docker's has health checks, and only its archives load everywhere:
    // Docker 20.10 refuses those of OCI. The layer has the same bytes each time; the configuration
    // has a random id of the build.
    buildah()
        .args(["build", "--format=docker", "--iidfile=target/packaging/image-id"])
        .args([format!("--timestamp={}", release.committed_at)])
        .args([label("title", "paxoslease"), label("version", VERSION)])
        .args([label("description", "Leases that a small group of nodes agrees on")])
        .args([label("licenses", "MIT OR Apache-2.0")])
        .args(["--identity-label=false", "--file=deploy/container/Dockerfile", IMAGE])
        .run()?;
    let id = fs::read_to_string(path("target/packaging/image-id"))?;
    // Podman 4.3 cannot load a compressed archive.
    let archive = format!("{OUT}/paxoslease-{VERSION}-x86_64-image.tar");
    let to = format!("docker-archive:{archive}:paxoslease:{VERSION}");
    buildah().args(["push", "--quiet", &id, &to]).run()
}

/// What the shipped binary was built from, as CycloneDX.
fn sbom(release: &Release) -> anyhow::Result<()> {
    let epoch = format!("SOURCE_DATE_EPOCH={}", release.committed_at);
    Invocation::new("env", [&epoch, "cargo", "cyclonedx", "--format=json", "--spec-version=1.5"])
        .args(["--describe=binaries", "--no-build-deps", "--target=x86_64-unknown-linux-gnu"])
        .args(["--quiet", "--manifest-path=crates/paxoslease-cli/Cargo.toml"])
        .run()?;
    // It writes one beside every manifest, with the folder of this machine in it.
    let made = ["ls-files", "--others", "--ignored", "--exclude=*.cdx.json"];
    let made = Invocation::new("git", made).args(["*.cdx.json", ":!target"]).stdout()?;
    let ours = fs::read_to_string(path("crates/paxoslease-cli/paxoslease_bin.cdx.json"))?;
    for file in made.lines() {
        fs::remove_file(path(file)).with_context(|| format!("cannot remove {file}"))?;
    }
    let root = repository_root().to_str().context("a folder whose name is not text")?;
    let name = format!("{OUT}/paxoslease-{VERSION}-x86_64-linux.cdx.json");
    write(&name, &ours.replace(root, "/paxoslease"))
}

/// The wheel and the source distribution.
fn python(release: &Release) -> anyhow::Result<()> {
    crate::python::build(OUT, release.optimised)
}

fn run<const N: usize>(program: &'static str, args: [&str; N]) -> anyhow::Result<()> {
    Invocation::new(program, args).run()
}

fn write(file: &str, text: &str) -> anyhow::Result<()> {
    let file = path(file);
    fs::create_dir_all(file.parent().expect("a file in a folder"))?;
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn path(relative: &str) -> std::path::PathBuf {
    Path::new(repository_root()).join(relative)
}
