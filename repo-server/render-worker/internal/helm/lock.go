package helm

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/Masterminds/semver/v3"

	chart "helm.sh/helm/v4/pkg/chart/v2"

	"argosy/render-worker/internal/fail"
	"argosy/render-worker/internal/wire"
)

// locked gives dependencies the versions that the chart's lock file pins, which is what
// `helm dependency build` fetches. Without a lock they stay as they are; a lock of other
// dependencies is an error, as it is there.
func locked(loaded *chart.Chart, wanted []*chart.Dependency) ([]*chart.Dependency, error) {
	lock := loaded.Lock
	if lock == nil {
		return wanted, nil
	}
	if !inSync(loaded.Metadata, lock) {
		message := "the lock file (Chart.lock) is out of sync with the dependencies file (Chart.yaml). Please update the dependencies with 'helm dependency update'"
		if loaded.Metadata.APIVersion == chart.APIVersionV1 {
			message = "the lock file (requirements.lock) is out of sync with the dependencies file (requirements.yaml). Please update the dependencies"
		}
		return nil, fail.New(wire.Error_CHART, message).At("Chart.lock", 0)
	}
	var pinned []*chart.Dependency
	for _, dependency := range wanted {
		copy := *dependency
		if pin := pinOf(lock, dependency); pin != nil {
			copy.Version = pin.Version
		}
		pinned = append(pinned, &copy)
	}
	return pinned, nil
}

// pinOf finds what the lock says of a dependency. One chart may be locked in several
// versions, for several aliases.
func pinOf(lock *chart.Lock, dependency *chart.Dependency) *chart.Dependency {
	constraint, err := semver.NewConstraint(dependency.Version)
	if err != nil {
		return nil
	}
	for _, pin := range lock.Dependencies {
		if pin == nil || pin.Name != dependency.Name {
			continue
		}
		if version, err := semver.NewVersion(pin.Version); err == nil && constraint.Check(version) {
			return pin
		}
	}
	return nil
}

// inSync tells whether a lock was made for the dependencies of a chart: its digest is of
// both, or for an old chart perhaps of the dependencies alone, as Helm 2 had it.
func inSync(metadata *chart.Metadata, lock *chart.Lock) bool {
	wanted := make([]*chart.Dependency, len(metadata.Dependencies))
	for at, dependency := range metadata.Dependencies {
		wanted[at] = resolved(dependency, at, lock)
	}
	if lock.Digest == digest([2][]*chart.Dependency{wanted, lock.Dependencies}) {
		return true
	}
	return metadata.APIVersion == chart.APIVersionV1 &&
		lock.Digest == digest(map[string][]*chart.Dependency{"dependencies": metadata.Dependencies})
}

// resolved is a dependency as it was when the digest was made: its repository by URL. The
// lock has the URL of one that is named by an alias, in the same place of the list.
func resolved(dependency *chart.Dependency, at int, lock *chart.Lock) *chart.Dependency {
	if dependency == nil || at >= len(lock.Dependencies) || lock.Dependencies[at] == nil {
		return dependency
	}
	if !strings.HasPrefix(dependency.Repository, "@") && !strings.HasPrefix(dependency.Repository, "alias:") {
		return dependency
	}
	copy := *dependency
	copy.Repository = lock.Dependencies[at].Repository
	return &copy
}

func digest(of any) string {
	text, err := json.Marshal(of)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}
