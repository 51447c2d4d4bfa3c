// Package trust verifies signatures of modules against a trust policy, and signs modules.
//
//	policy, err := trust.Load("/etc/trust/policy.yaml", nil)
//	rule := policy.Current().RuleFor(trust.SubjectOf(repository)) // mode and keys for this repository
//	v := trust.NewVerification(reader, rule)
//	key, err := v.VerifyImage(ctx, manifest)                      // cosign signature; nil means no valid signature
//	key = v.VerifyDescriptor(descriptor)                          // OCM signature in the component descriptor
//
//	signed, err := trust.Sign(ctx, artifact, name, rsaKey, resolve) // OCM
//	signature, err := trust.Cosign(artifact, nil, repository, key)  // cosign
//
// # How it works
//
// A [Policy] is a list of rules. Each rule is for a prefix of repositories. If several prefixes match, the rule with
// the longest prefix is used. A rule has a mode (enforce, warn or off) and public keys. The file is read again at most
// every five seconds. If the file becomes invalid, the last valid content remains in force.
//
// A component version has a signature in its descriptor (OCM, with RSA), or a cosign signature of its manifest (with a
// key). One valid signature by a key of the rule is sufficient. A [Verification] records the reason for each signature
// that is not accepted. [Verification.Fail] includes these reasons in its error message.
//
// # What it does not do
//
// The package does not query a transparency log or a certificate authority. Therefore signatures without a key of the
// policy (keyless, GPG) are not accepted. The package does not compare the name in a cosign signature with the name of
// the artefact, because copies in other registries keep their signatures. The package does not decide which layers a
// signature covers; package registry does.
package trust
