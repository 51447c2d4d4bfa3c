// Package trust verifies signatures of modules against a trust policy, and signs modules.
//
//	policy, err := trust.Load("/etc/trust/policy.yaml", nil)
//	rule := policy.Current().RuleFor(trust.SubjectOf(repository)) // the mode and the keys for this repository
//	v := trust.NewVerification(reader, rule)
//	key, err := v.VerifyImage(ctx, manifest)                      // by cosign; nil: no valid signature
//	key = v.VerifyDescriptor(descriptor)                          // in the component descriptor
//
//	signed, err := trust.Sign(ctx, artifact, name, rsaKey, resolve) // OCM
//	signature, err := trust.Cosign(artifact, nil, repository, key)  // cosign
//
// # How it works
//
// A [Policy] is a list of rules by prefix of the repository; the longest prefix applies. A rule has a mode (enforce,
// warn or off) and public keys. The file is read again at most every five seconds; if it becomes invalid, the last
// valid content stays in force.
//
// A component version is signed in its descriptor (OCM, with RSA) or by cosign (its manifest, with a key). One valid
// signature by a key of the rule is enough. A [Verification] collects why each signature that it found does not count,
// for the error message of [Verification.Fail].
//
// # What it does not do
//
// It queries no transparency log and no certificate authority: signatures without a key of the policy (keyless, GPG) do
// not count. It does not compare the name in a cosign signature with that of the artefact, because copies in other
// registries keep their signatures. It decides nothing about layers: package registry derives which layers a signature
// covers.
package trust
