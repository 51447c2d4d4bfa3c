// Package trust verifies the signatures of modules by a trust policy, and signs modules.
//
//	policy, err := trust.Load("/etc/trust/policy.yaml", nil)
//	rule := policy.Current().RuleForRepository(trust.SubjectOf(repository)) // mode and keys for this repository
//	v := trust.NewVerification(reader, rule)
//	key, err := v.FindCosignImageSigner(ctx, manifest)            // cosign signature; nil means no valid signature
//	key = v.FindDescriptorSigner(descriptor)                      // OCM signature in the component descriptor
//
//	signed, err := trust.Sign(ctx, artifact, name, rsaKey, resolve)            // OCM
//	signature, err := trust.NewCosignSignature(artifact, nil, repository, key) // cosign
//
// # How it works
//
// A [Policy] has a list of rules. Each rule applies to repositories with a certain prefix. If several prefixes match,
// the rule with the longest prefix applies. A rule has a mode (enforce, warn or off) and public keys. While the policy
// is used, its file is read again at most every five seconds. If the file becomes invalid, the last valid content stays
// in force.
//
// A component version may have two kinds of signatures: a signature in its descriptor (OCM, with RSA), or a cosign
// signature of its manifest (with a key). One valid signature by any key of the rule is sufficient. A [Verification]
// records why each invalid signature is not accepted. The error of [Verification.SignatureError] contains the reasons
// why signatures are not accepted.
//
// # What it does not do
//
// The package does not query a transparency log or a certificate authority. Therefore a signature without a key in the
// policy (keyless, GPG) is not accepted. The package does not compare the name in a cosign signature with the name of
// the artefact, because copies in other registries keep their signatures. The package does not decide which layers a
// signature covers; package registry decides that.
package trust
