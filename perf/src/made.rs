//! A monorepo that is made: 641 leaves (overlays over shared bases, overlays with a base of their own, charts) of seven files, and
//! commits that touch as many leaves as those of a large public one do: half of them one or two, one in ten more than nine,
//! one in a hundred more than twenty, at most 37.

use std::path::{Path, PathBuf};

use anyhow::Result;
use argosy_test_cluster::git::Repository;

use crate::chance::Chance;

/// Leaves over each shared base. A commit that touches many leaves mostly touches a base.
const SHARED: [usize; 24] = [
    37, 20, 18, 15, 12, 12, 10, 9, 9, 8, 8, 7, 6, 6, 6, 5, 5, 4, 4, 4, 3, 3, 2, 1,
];

/// Makes it, with a first commit and `commits` more.
pub(crate) fn repository(dir: &Path, leaves: usize, commits: usize) -> Result<PathBuf> {
    let made = Made {
        repo: Repository::init(dir)?,
        leaves,
    };
    made.begin()?;
    let mut chance = Chance::new(641);
    for nth in 1..=commits {
        made.change(&mut chance, nth)?;
        made.repo.commit("change")?;
    }
    Ok(dir.to_owned())
}

struct Made {
    repo: Repository,
    leaves: usize,
}

/// What a leaf is made from.
enum Leaf {
    /// An overlay over the shared base of this number.
    Shared(usize),
    /// An overlay with a base beside it.
    Own,
    Chart,
}

impl Made {
    fn leaf(&self, nth: usize) -> Leaf {
        match nth % 3 {
            0 => {
                // The shares of the bases, for any number of leaves.
                let at = nth * SHARED.iter().sum::<usize>() / self.leaves.max(1);
                let mut upto = 0;
                let base = SHARED.iter().position(|size| {
                    upto += size;
                    at < upto
                });
                Leaf::Shared(base.unwrap_or(0))
            }
            1 => Leaf::Own,
            _ => Leaf::Chart,
        }
    }

    fn begin(&self) -> Result<()> {
        let write = |path: String, text: &str| self.repo.write(&path, text);
        for base in 0..SHARED.len() {
            write(
                format!("shared/{base}/kustomization.yaml"),
                "resources: [a.yaml]\n",
            )?;
            write(format!("shared/{base}/a.yaml"), &map("shared", 0))?;
        }
        for nth in 0..self.leaves {
            let extra: Vec<String> = (0..5).map(|at| format!("extra-{at}.yaml")).collect();
            let folder = match self.leaf(nth) {
                Leaf::Shared(base) => {
                    let list = extra.join(", ");
                    write(
                        format!("apps/{nth}/kustomization.yaml"),
                        &format!(
                            "resources: [../../shared/{base}, {list}]\npatches: [{{path: patch.yaml}}]\n"
                        ),
                    )?;
                    format!("apps/{nth}")
                }
                Leaf::Own => {
                    write(
                        format!("apps/{nth}/overlay/kustomization.yaml"),
                        "resources: [../base]\nnamePrefix: p-\n",
                    )?;
                    write(
                        format!("apps/{nth}/base/kustomization.yaml"),
                        &format!("resources: [a.yaml, {}]\n", extra.join(", ")),
                    )?;
                    format!("apps/{nth}/base")
                }
                Leaf::Chart => {
                    write(
                        format!("apps/{nth}/Chart.yaml"),
                        &format!("apiVersion: v2\nname: c{nth}\nversion: 1.0.0\n"),
                    )?;
                    write(
                        format!("apps/{nth}/templates/a.yaml"),
                        &map("chart", 0).replace("\"0\"", "\"{{ .Values.value }}\""),
                    )?;
                    format!("apps/{nth}/templates")
                }
            };
            for (at, name) in extra.iter().enumerate() {
                write(format!("{folder}/{name}"), &map(&format!("extra-{at}"), nth))?;
            }
            self.touch(nth, 0)?;
        }
        self.repo.commit("begin")?;
        Ok(())
    }

    fn touch(&self, leaf: usize, value: usize) -> Result<()> {
        match self.leaf(leaf) {
            Leaf::Shared(_) => self
                .repo
                .write(&format!("apps/{leaf}/patch.yaml"), &map("shared", value)),
            Leaf::Own => self
                .repo
                .write(&format!("apps/{leaf}/base/a.yaml"), &map("own", value)),
            Leaf::Chart => self
                .repo
                .write(&format!("apps/{leaf}/values.yaml"), &format!("value: {value}\n")),
        }
    }

    fn change(&self, chance: &mut Chance, nth: usize) -> Result<()> {
        let count = match chance.below(100) {
            0..10 => 0,
            10..40 => 1,
            40..62 => 2,
            62..80 => 3,
            80..90 => 4 + chance.below(6),
            90..99 => 9 + chance.below(12),
            _ => 21 + chance.below(17),
        };
        if count == 0 {
            return self.repo.write("docs/README.md", &format!("{nth}\n"));
        }
        if count > 3 && chance.below(2) == 0 {
            let nearest = SHARED
                .iter()
                .enumerate()
                .min_by_key(|(_, size)| size.abs_diff(count));
            let base = nearest.map_or(0, |(base, _)| base);
            return self
                .repo
                .write(&format!("shared/{base}/a.yaml"), &map("shared", nth));
        }
        (0..count).try_for_each(|_| self.touch(chance.below(self.leaves), nth))
    }
}

fn map(name: &str, value: usize) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  value: \"{value}\"\n")
}
