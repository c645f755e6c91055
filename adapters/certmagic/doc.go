// Package certmagiclock gives CertMagic, which Caddy is built on, locks on MongoDB: of several
// processes that share a storage of certificates one obtains a certificate, all of them use it.
//
//	// Files keep certificates on a disk that all processes see.
//	type Files struct{ certmagic.FileStorage }
//
//	// A Storage has the locks of Locker: its methods stand before those that Files embeds.
//	type Storage struct {
//		*certmagiclock.Locker
//		Files
//	}
//
// CertMagic locks by name: Unlock gets no handle of the lock that Lock granted. So a Locker
// keeps the lease of each name that its process holds. The lease is renewed in the background
// for as long as the process lives, and is free one TTL after its death, however long CertMagic
// would have gone on trying.
//
// CertMagic does not learn of a lock that was lost while it works: none of its calls takes a
// context from the lock. It asks before each attempt to obtain a certificate (RenewLockLease).
// If the lease was lost, the Locker then asks for the key again. If the key is granted,
// CertMagic first looks whether the certificate is there already. If not, the attempt fails,
// and CertMagic tries again later. So after a loss two processes may obtain the same
// certificate for at most the rest of one attempt, which costs one certificate too many.
//
// Within a process one caller at a time has a name, from Lock to Unlock, even if its lease is
// lost meanwhile. So an Unlock never releases the lease of another caller.
package certmagiclock
