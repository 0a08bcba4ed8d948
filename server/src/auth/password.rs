//! Passwords: bcrypt, on threads that may be busy, and never more at a time than there are cores for.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tonic::Status;

/// Cost of new hashes, Argo CD's.
const COST: u32 = 10;
/// bcrypt reads no further: a longer password would be cut silently.
const LEN_MAX: usize = 72;
/// Names longer than this are nobody's.
pub(crate) const NAME_LEN_MAX: usize = 32;

/// Hashes and compares passwords.
pub(crate) struct Passwords {
    threads: Arc<Semaphore>,
    /// Guesses at what is nobody's that may be compared at the same time.
    noise: Semaphore,
    /// What a password is compared with when there is no account: it must cost the same.
    nobody: String,
}

impl Passwords {
    /// At most `threads` comparisons at a time.
    pub(crate) fn new(threads: usize) -> Result<Self, bcrypt::BcryptError> {
        Ok(Passwords {
            threads: Arc::new(Semaphore::new(threads.max(1))),
            noise: Semaphore::new((threads / 2).max(1)),
            nobody: bcrypt::hash_with_result("nobody", COST)?.format_for_version(bcrypt::Version::TwoA),
        })
    }

    /// Takes as long as comparing a password of somebody, if there is room for it. A flood of names that are nobody's must not
    /// hold up those who know their password: what is beyond half of the threads is not compared, and answered as late.
    pub(crate) async fn fits_nobody(&self, password: &str) -> Result<(), Status> {
        if let Ok(_place) = self.noise.try_acquire() {
            self.fits(password, None).await?;
        }
        Ok(())
    }

    /// Does the password fit? Without a hash the answer is no and takes as long.
    pub(crate) async fn fits(&self, password: &str, hash: Option<&str>) -> Result<bool, Status> {
        let known = hash.filter(|hash| !hash.is_empty());
        let (password, hash) = (password.to_owned(), known.unwrap_or(&self.nobody).to_owned());
        let fits = self
            .run(move || bcrypt::verify(&password, &hash).unwrap_or(false))
            .await?;
        Ok(fits && known.is_some())
    }

    /// The hash of a new password.
    pub(crate) async fn hash(&self, password: &str) -> Result<String, Status> {
        if password.len() > LEN_MAX {
            return Err(Status::invalid_argument(format!(
                "the password is longer than {LEN_MAX} bytes"
            )));
        }
        let password = password.to_owned();
        let made = self
            .run(move || {
                bcrypt::hash_with_result(&password, COST)
                    .map(|made| made.format_for_version(bcrypt::Version::TwoA))
            })
            .await?;
        made.map_err(|error| Status::internal(format!("hash the password: {error}")))
    }

    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
        let permit = self.threads.clone().acquire_owned().await;
        let permit = permit.map_err(|_| Status::unavailable("the server is stopping"))?;
        let joined = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        joined
            .await
            .map_err(|error| Status::internal(format!("compare the password: {error}")))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_hash_fits_its_password_alone() {
        let passwords = Passwords::new(1).unwrap();
        let hash = passwords.hash("correct horse").await.unwrap();
        assert!(hash.starts_with("$2a$10$"), "the form that Go writes");
        assert!(passwords.fits("correct horse", Some(&hash)).await.unwrap());
        assert!(!passwords.fits("correct horse ", Some(&hash)).await.unwrap());
        assert!(
            !passwords.fits("nobody", None).await.unwrap(),
            "the hash of nobody fits nobody"
        );
        assert!(!passwords.fits("", Some("")).await.unwrap());
        assert!(!passwords.fits("x", Some("not a hash")).await.unwrap());
        assert!(passwords.hash(&"x".repeat(73)).await.is_err());
    }
}
