//! Who signed a commit or tag. Objects are taken apart in process; GnuPG says what a signature is worth, by a ring of its own that
//! holds the operator's keys and nothing else. All keys of the ring are trusted: which of them may sign what is a project's to say
//! ([`argosy_api::integrity`]).

use super::{Access, Commit, Git, Repo, Resolved};
use crate::error::{Error, Result};
use argosy_api::integrity::{Extent, Signature, Verdict};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Commits looked at for one demand of a whole history.
const MAX_COMMITS: usize = 200_000;
/// Largest key file.
const MAX_KEY: u64 = 1 << 20;
/// How long one run of GnuPG may take.
const DEADLINE: Duration = Duration::from_secs(20);
/// How long a verdict stands: keys and signatures may come to their end meanwhile.
const VERDICT_TTL: Duration = Duration::from_secs(600);
/// What a commit's message says, in any case, when it vouches for all before it.
const SEAL: &[u8] = b"argocd-gpg-seal:";

/// The keys of the operator, and what they were found to be worth.
pub(crate) struct Keyring {
    /// One file a key, named by its long id.
    source: PathBuf,
    scratch: PathBuf,
    ring: Mutex<Option<Arc<Ring>>>,
    verdicts: moka::sync::Cache<(gix::ObjectId, [u8; 32]), (Verdict, String)>,
}

/// A home of GnuPG with some keys.
struct Ring {
    keys: [u8; 32],
    home: tempfile::TempDir,
}

impl Keyring {
    pub(crate) fn new(source: PathBuf, scratch: PathBuf) -> Keyring {
        Keyring {
            source,
            scratch,
            ring: Mutex::default(),
            verdicts: moka::sync::Cache::builder()
                .max_capacity(100_000)
                .time_to_live(VERDICT_TTL)
                .build(),
        }
    }

    /// The ring of the keys that are there now.
    async fn ring(&self) -> Result<Arc<Ring>> {
        let files = self.files()?;
        let keys = digest(&files);
        let known = self.ring.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(ring) = known.filter(|ring| ring.keys == keys) {
            return Ok(ring);
        }
        let home = tempfile::Builder::new()
            .prefix("gpg-")
            .tempdir_in(&self.scratch)
            .map_err(|e| Error::io("failed to create a key ring", e))?;
        std::fs::write(
            home.path().join("gpg.conf"),
            "trust-model always\nno-auto-key-locate\n",
        )
        .map_err(|e| Error::io("failed to create a key ring", e))?;
        for (name, key) in &files {
            // One broken key hurts nobody but who was to sign with it.
            let file = write(home.path(), &format!("{name}.asc"), key)?;
            let said = gpg(home.path(), &["--import", &file]).await?;
            if !said.contains("[GNUPG:] IMPORT_OK ") {
                tracing::warn!(key = name, "a key of the key ring cannot be read");
            }
        }
        let ring = Arc::new(Ring { keys, home });
        *self.ring.lock().unwrap_or_else(PoisonError::into_inner) = Some(ring.clone());
        Ok(ring)
    }

    /// Names and contents of the key files, sorted.
    fn files(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let mut files = Vec::new();
        let entries = std::fs::read_dir(&self.source).into_iter().flatten().flatten();
        for entry in entries {
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
                continue;
            };
            let is_key = name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
            let path = entry.path();
            if is_key
                && path
                    .metadata()
                    .is_ok_and(|file| file.is_file() && file.len() <= MAX_KEY)
            {
                let key = std::fs::read(&path)
                    .map_err(|e| Error::io(format!("failed to read {}", path.display()), e))?;
                files.push((name, key));
            }
        }
        files.sort();
        Ok(files)
    }

    /// What a signature of an object is worth.
    async fn verdict(&self, id: gix::ObjectId, signed: Option<Signed>) -> Result<(Verdict, String)> {
        let Some(signed) = signed else {
            return Ok((Verdict::Unsigned, String::new()));
        };
        let ring = self.ring().await?;
        if let Some(known) = self.verdicts.get(&(id, ring.keys)) {
            return Ok(known);
        }
        let dir = tempfile::Builder::new()
            .prefix("verify-")
            .tempdir_in(&self.scratch)
            .map_err(|e| Error::io("failed to create a private directory", e))?;
        let signature = write(dir.path(), "signature", &signed.signature)?;
        let data = write(dir.path(), "data", &signed.data)?;
        let said = gpg(ring.home.path(), &["--verify", &signature, &data]).await?;
        let found = read_status(&said);
        self.verdicts.insert((id, ring.keys), found.clone());
        Ok(found)
    }
}

fn digest(files: &[(String, Vec<u8>)]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    for (name, key) in files {
        hasher.update(name.as_bytes());
        hasher.update(&(key.len() as u64).to_le_bytes());
        hasher.update(key);
    }
    *hasher.finalize().as_bytes()
}

fn write(dir: &Path, name: &str, data: &[u8]) -> Result<String> {
    let path = dir.join(name);
    std::fs::write(&path, data).map_err(|e| Error::io(format!("failed to write {name} for GnuPG"), e))?;
    Ok(path.display().to_string())
}

/// Runs GnuPG and gives its status lines; that it fails says nothing that these do not.
async fn gpg(home: &Path, arguments: &[&str]) -> Result<String> {
    let run = tokio::process::Command::new("gpg")
        .args([
            "--batch",
            "--no-tty",
            "--no-autostart",
            "--no-permission-warning",
            "--status-fd",
            "1",
        ])
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("GNUPGHOME", home)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    match tokio::time::timeout(DEADLINE, run).await {
        Ok(Ok(output)) => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(Err(error)) => Err(Error::io(
            "failed to start gpg, which signatures are verified with",
            error,
        )),
        Err(_) => Err(Error::Deadline {
            what: "gpg".into(),
            after: DEADLINE,
        }),
    }
}

/// Reads the first status line about a signature.
fn read_status(said: &str) -> (Verdict, String) {
    for line in said.lines() {
        let mut words = line.strip_prefix("[GNUPG:] ").unwrap_or_default().split(' ');
        let verdict = match words.next().unwrap_or_default() {
            "GOODSIG" => Verdict::Good,
            "BADSIG" => Verdict::Bad,
            "EXPSIG" => Verdict::ExpiredSignature,
            "EXPKEYSIG" => Verdict::ExpiredKey,
            "REVKEYSIG" => Verdict::RevokedKey,
            "ERRSIG" => Verdict::MissingKey,
            _ => continue,
        };
        return (verdict, words.next().unwrap_or_default().to_ascii_uppercase());
    }
    // What GnuPG has no word for (a signature by SSH, or a torn one) is no good signature.
    (Verdict::Bad, String::new())
}

/// A signature and what it is over.
struct Signed {
    signature: Vec<u8>,
    data: Vec<u8>,
}

/// What is known of an object before GnuPG is asked.
struct Candidate {
    id: gix::ObjectId,
    revision: String,
    tag: bool,
    author: String,
    signed: Option<Signed>,
}

impl Git {
    /// The signatures that a demand is about: the annotated tag or the commit, and for a whole history all before it, back to
    /// where good seals vouch for the rest.
    ///
    /// # Errors
    /// Those of fetching; [`Error::Limit`] for a history that is too long; [`Error::Io`] without GnuPG.
    pub(crate) async fn signatures(
        &self,
        access: &Access,
        resolved: &Resolved,
        commit: &Commit,
        extent: Extent,
    ) -> Result<Vec<Signature>> {
        let mut found = Vec::new();
        if let Some(tag) = self.annotated(access, resolved).await? {
            found.push(self.signature(tag).await?);
            if extent == Extent::Head {
                return Ok(found);
            }
        }
        let repo = commit.repo.clone();
        let head = commit.id;
        if extent == Extent::Head {
            found.push(self.signature(read(&repo, head)?).await?);
            return Ok(found);
        }
        if access.depth > 0 {
            return Err(Error::Source(format!(
                "the history of {} cannot be verified: only {} commits of it are fetched (depth)",
                access.url.normal(),
                access.depth
            )));
        }
        let seals = self.seals(&repo, head).await?;
        if seals.contains(&head) {
            found.push(self.signature(read(&repo, head)?).await?);
            return Ok(found);
        }
        for id in history(&repo, head, &seals)? {
            found.push(self.signature(read(&repo, id)?).await?);
        }
        Ok(found)
    }

    async fn signature(&self, candidate: Candidate) -> Result<Signature> {
        let (verdict, key) = self.keyring.verdict(candidate.id, candidate.signed).await?;
        Ok(Signature {
            revision: candidate.revision,
            tag: candidate.tag,
            verdict,
            key,
            author: candidate.author,
        })
    }

    /// The tag object that a resolved tag stands for, if it is one of its own.
    async fn annotated(&self, access: &Access, resolved: &Resolved) -> Result<Option<Candidate>> {
        let Some(reference) = resolved
            .reference
            .as_deref()
            .filter(|name| name.starts_with("refs/tags/"))
        else {
            return Ok(None);
        };
        let refs = self.refs(access, false).await?;
        let Some(sha) = refs.annotated.get(reference) else {
            return Ok(None);
        };
        let id = gix::ObjectId::from_hex(sha.as_bytes()).map_err(|_| Error::Revision {
            revision: sha.clone(),
        })?;
        let repo = self.repo(&access.url).await?;
        if let Some(tag) = read_tag(&repo, id)? {
            return Ok(Some(tag));
        }
        let _fetching = repo.fetching.lock().await;
        let refspec = format!("+{reference}:refs/argosy/{}", super::short_hash(reference));
        self.fetch(access, &repo, &[&refspec]).await?;
        read_tag(&repo, id)?.map(Some).ok_or_else(|| Error::Revision {
            revision: reference.to_owned(),
        })
    }

    /// Commits of a history that vouch for all before them, with a good signature.
    async fn seals(&self, repo: &Arc<Repo>, head: gix::ObjectId) -> Result<HashSet<gix::ObjectId>> {
        let mut seals = HashSet::new();
        for id in history(repo, head, &HashSet::new())? {
            if is_seal(repo, id)? && self.signature(read(repo, id)?).await?.verdict == Verdict::Good {
                seals.insert(id);
            }
        }
        Ok(seals)
    }
}

/// A commit and all before it, without what is before the seals; the seals themselves are in it.
fn history(repo: &Repo, head: gix::ObjectId, seals: &HashSet<gix::ObjectId>) -> Result<Vec<gix::ObjectId>> {
    let broken = |e: &dyn std::fmt::Display| repo.damaged("the history", e);
    let local = repo.local();
    let mut hidden = Vec::new();
    for seal in seals {
        let commit = local.find_commit(*seal).map_err(|e| broken(&e))?;
        hidden.extend(commit.parent_ids().map(gix::Id::detach));
    }
    let walk = local
        .rev_walk([head])
        .with_hidden(hidden)
        .all()
        .map_err(|e| broken(&e))?;
    let mut found = Vec::new();
    for info in walk {
        found.push(info.map_err(|e| broken(&e))?.id);
        if found.len() > MAX_COMMITS {
            return Err(Error::Limit {
                which: format!("commits of {} to verify", repo.url),
                limit: format!("{MAX_COMMITS}; seal an earlier one"),
            });
        }
    }
    Ok(found)
}

fn is_seal(repo: &Repo, id: gix::ObjectId) -> Result<bool> {
    let local = repo.local();
    let commit = local
        .find_commit(id)
        .map_err(|e| repo.damaged(format!("commit {id}"), &e))?;
    let message = commit.message_raw_sloppy();
    Ok(message.split(|byte| *byte == b'\n').any(|line| {
        line.get(..SEAL.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(SEAL))
    }))
}

fn read(repo: &Repo, id: gix::ObjectId) -> Result<Candidate> {
    let broken = |e: &dyn std::fmt::Display| repo.damaged(format!("commit {id}"), e);
    let local = repo.local();
    let commit = local.find_commit(id).map_err(|e| broken(&e))?;
    let author = commit.author().map_err(|e| broken(&e))?;
    let signed = commit.signature().map_err(|e| broken(&e))?;
    Ok(Candidate {
        id,
        revision: id.to_hex().to_string(),
        tag: false,
        author: format!("{} <{}>", author.name, author.email),
        signed: signed.map(|(signature, data)| Signed {
            signature: signature.to_vec(),
            data: data.to_bstring().into(),
        }),
    })
}

fn read_tag(repo: &Repo, id: gix::ObjectId) -> Result<Option<Candidate>> {
    let broken = |e: &dyn std::fmt::Display| repo.damaged(format!("tag {id}"), e);
    let local = repo.local();
    let Some(object) = local.try_find_object(id).map_err(|e| broken(&e))? else {
        return Ok(None);
    };
    let tag = object.try_into_tag().map_err(|e| broken(&e))?;
    let decoded = tag.decode().map_err(|e| broken(&e))?;
    let tagger = decoded.tagger().map_err(|e| broken(&e))?;
    let signed = decoded.signature.map(|signature| {
        // The signature is the end of the object; what is before it was signed.
        let upto = tag.data.len().saturating_sub(signature.len());
        let start = find(&tag.data, b"-----BEGIN").unwrap_or(upto);
        Signed {
            signature: tag.data[start..].to_vec(),
            data: tag.data[..start].to_vec(),
        }
    });
    Ok(Some(Candidate {
        id,
        revision: decoded.name.to_string(),
        tag: true,
        author: tagger.map_or_else(String::new, |tagger| {
            format!("{} <{}>", tagger.name, tagger.email)
        }),
        signed,
    }))
}

/// Where a text begins for the last time.
fn find(data: &[u8], text: &[u8]) -> Option<usize> {
    data.windows(text.len()).rposition(|window| window == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_gnupg_are_read() {
        let of = |line: &str| read_status(&format!("[GNUPG:] NEWSIG\n[GNUPG:] {line}\n"));
        let key = "D56C4FCA57A46444";
        assert_eq!(of(&format!("GOODSIG {key} Ada")), (Verdict::Good, key.into()));
        assert_eq!(
            of(&format!("EXPKEYSIG {key} Ada")),
            (Verdict::ExpiredKey, key.into())
        );
        assert_eq!(
            of(&format!("ERRSIG {key} 1 8 00 1 9")),
            (Verdict::MissingKey, key.into())
        );
        assert_eq!(read_status(""), (Verdict::Bad, String::new()));
    }
}
