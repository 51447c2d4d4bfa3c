package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/pageserver"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/signin"
)

const (
	// reviewAge is the time for which an answer of the API server about the permissions of a person is used.
	reviewAge = time.Minute
	// maxViewers is the maximum number of persons whose permissions are remembered.
	maxViewers = 1000
)

// reviewTimeout is the deadline of all requests to the API server about the permissions of a person. Tests change
// reviewTimeout.
var reviewTimeout = 10 * time.Second

// viewers decides what each person who has signed in may see and do. viewers asks the API server for the permissions of
// the person. All Kymas of a fleet are in one namespace. Therefore a person who may list the Kymas sees all pages, and
// a person who may not list the Kymas sees no page.
type viewers struct {
	index   *fleetindex.Index
	actions bool
	now     func() time.Time

	mu    sync.Mutex
	known map[string]*viewerRights // guarded by mu; by name and groups
}

// viewerRights are the rights of one person.
type viewerRights struct {
	until  time.Time
	viewer *pageserver.Viewer // nil: the person may not see the fleet
}

func newViewers(index *fleetindex.Index, allowsActions bool, now func() time.Time) *viewers {
	return &viewers{index: index, actions: allowsActions, now: now, known: map[string]*viewerRights{}}
}

// authorize returns the viewer of a request whose session the sign-in has accepted.
func (v *viewers) authorize(w http.ResponseWriter, r *http.Request) *pageserver.Viewer {
	user, ok := signin.UserOf(r)
	cluster := v.index.Snapshot().Cluster
	switch {
	case !ok:
		refuse(w, http.StatusUnauthorized, "You are not signed in", "This request has no session.",
			"Open the dashboard again.")
		return nil
	case cluster == nil:
		refuse(w, http.StatusServiceUnavailable, "The fleet cannot be read",
			"The dashboard has no connection to the control plane, so it cannot ask what you may see.",
			"The dashboard tries again by itself. Load this page again.")
		return nil
	}
	viewer, err := v.viewerFor(r.Context(), cluster, user)
	switch {
	case err != nil:
		refuse(w, http.StatusServiceUnavailable, "Your rights are not known", err.Error(), "Load this page again.")
	case viewer == nil:
		refuse(w, http.StatusForbidden, "You may not see this fleet",
			fmt.Sprintf("%s may not list Kymas in namespace %s.", user.Name, cluster.Namespace),
			"Ask an administrator of the control plane for the ClusterRole view in that namespace, then load "+
				"this page again.")
	}
	return viewer
}

// viewerFor returns, for a person, a viewer with the person's permissions, or nil if the person may not see the fleet.
func (v *viewers) viewerFor(ctx context.Context, c *connection.Cluster, user signin.User) (*pageserver.Viewer, error) {
	key := user.Name + "\x00" + strings.Join(user.Groups, "\x00")
	v.mu.Lock()
	known := v.known[key]
	v.mu.Unlock()
	if known != nil && v.now().Before(known.until) {
		return known.viewer, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	isAllowed, err := isPermitted(ctx, c, user, "list", "kymas")
	if err != nil {
		return nil, err
	}
	rights := &viewerRights{until: v.now().Add(reviewAge)}
	if isAllowed {
		rights.viewer = &pageserver.Viewer{Name: user.Name}
	}
	if isAllowed && v.actions {
		if err := recordPermissions(ctx, c, user, rights.viewer); err != nil {
			return nil, err
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.known) >= maxViewers {
		clear(v.known)
	}
	v.known[key] = rights
	return rights.viewer, nil
}

// recordPermissions checks the permissions of a person, and records in the viewer which changes the person may make in
// the dashboard. To request a retry, a person needs the permission to annotate Kymas and Manifests.
func recordPermissions(ctx context.Context, c *connection.Cluster, user signin.User, viewer *pageserver.Viewer) (
	err error) {
	may := func(verb string, resources ...string) bool {
		for _, resource := range resources {
			var is bool
			if is, err = isPermitted(ctx, c, user, verb, resource); err != nil || !is {
				return false
			}
		}
		return true
	}
	if viewer.MayMove = may("patch", connection.ResourceRollouts); err != nil {
		return err
	}
	if viewer.MayApprove = viewer.MayMove && may("approve", connection.ResourceRollouts); err != nil {
		return err
	}
	if viewer.MayRetry = may("patch", "kymas", "manifests"); err != nil || !viewer.MayMove && !viewer.MayRetry {
		return err
	}
	viewer.Acts, err = actAs(c, user)
	return err
}

// groupAuthenticated is the group that the API server adds to every authenticated user.
const groupAuthenticated = "system:authenticated"

// isPermitted asks the API server whether a person may do something in the namespace of the Kymas.
func isPermitted(ctx context.Context, c *connection.Cluster, user signin.User, verb, resource string) (bool, error) {
	r := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Name, Groups: append([]string{groupAuthenticated}, user.Groups...),
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: c.Namespace, Verb: verb,
			Group: v1beta2.GroupVersion.Group, Resource: resource},
	}}
	if err := c.Create(ctx, r); err != nil {
		return false, c.Explain(err, "asking what "+user.Name+" may do")
	}
	return r.Status.Allowed && !r.Status.Denied, nil
}

// actAs returns the cluster with impersonation of a person: the API server checks the permissions of that person, and
// its audit log contains the person's name.
func actAs(c *connection.Cluster, user signin.User) (*connection.Cluster, error) {
	config := rest.CopyConfig(c.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user.Name, Groups: user.Groups}
	as, err := connection.New(config, c.Context, c.Namespace)
	if err != nil {
		return nil, err
	}
	as.Serves = c.Serves
	return as, nil
}
