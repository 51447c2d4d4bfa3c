package source

import (
	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
	library "github.com/kyma-fleet/lifecycle-manager/manifest"
)

// IsUnreadable reports whether an error means that a source cannot be read, although the source itself may be right:
// its registry or repository does not answer, refuses the credentials, or does not have the content. If a version is
// already installed, a source that cannot be read does not affect it.
func IsUnreadable(err error) bool {
	switch loop.Reason(err) {
	case ocm.RegistryUnreachable, ocm.EgressRefused, ocm.RegistryUnauthorized, ocm.ArtifactNotFound,
		library.RepositoryUnreachable, library.RepositoryUnauthorized, library.ChartNotFound,
		v1beta2.ReasonLoginNotFound:
		return true
	}
	return false
}
