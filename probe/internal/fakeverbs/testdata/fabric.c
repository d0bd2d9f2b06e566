/* The shared file: its mapping, lock and objects, and which devices reach each other. */
#include "fabric.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

pthread_mutex_t process_lock = PTHREAD_MUTEX_INITIALIZER;

/* Mappings are kept until the process exits: a fabric is small, and each test has one. */
static struct mapping {
	struct mapping *next;
	dev_t dev;
	ino_t ino;
	struct fabric *f;
} *mappings;

static struct fabric *map(int fd, const struct stat *st)
{
	for (struct mapping *m = mappings; m; m = m->next)
		if (m->dev == st->st_dev && m->ino == st->st_ino)
			return m->f;
	if (st->st_size < (off_t)sizeof(struct fabric))
		return NULL;
	struct fabric *f = mmap(NULL, sizeof *f, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (f == MAP_FAILED)
		return NULL;
	struct mapping *m = calloc(1, sizeof *m);
	if (!m || f->magic != FABRIC_MAGIC || f->size != sizeof *f || f->object_size != sizeof f->objects[0] ||
	    f->device_size != sizeof f->devices[0]) {
		fprintf(stderr, "fakeverbs: the fabric's file has another layout than this library\n");
		free(m);
		munmap(f, sizeof *f);
		return NULL;
	}
	*m = (struct mapping){mappings, st->st_dev, st->st_ino, f};
	mappings = m;
	return f;
}

/*
 * fabric_open returns the fabric that the environment names, or NULL if there is none, which means a machine without
 * RDMA.
 */
struct fabric *fabric_open(void)
{
	char path[4096];
	const char *dir = getenv("FAKEVERBS_DIR");
	struct stat st;
	struct fabric *f = NULL;

	if (!dir || (size_t)snprintf(path, sizeof path, "%s/fabric", dir) >= sizeof path)
		return NULL;
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	pthread_mutex_lock(&process_lock);
	if (fstat(fd, &st) == 0)
		f = map(fd, &st);
	pthread_mutex_unlock(&process_lock);
	close(fd);
	return f;
}

/*
 * fabric_lock takes the lock of the fabric, even from a process that died with it, because tests kill processes. A
 * robust mutex does not work in qemu-user, which has no robust futexes.
 */
void fabric_lock(struct fabric *f)
{
	uint64_t me = (uint64_t)getpid();

	for (;;) {
		uint64_t owner = 0;
		if (atomic_compare_exchange_strong(&f->owner, &owner, me))
			return;
		if (!alive(owner) && atomic_compare_exchange_strong(&f->owner, &owner, me))
			return;
		sched_yield();
	}
}

void fabric_unlock(struct fabric *f) { f->owner = 0; }

uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

bool failed(uint64_t err)
{
	errno = (int)err;
	return err != 0;
}

bool alive(uint64_t pid) { return kill((pid_t)pid, 0) == 0 || errno != ESRCH; }

/*
 * object_new returns an object of this process, or NULL with errno. It reuses objects of dead processes when no other
 * is free.
 */
struct object *object_new(struct fabric *f, enum kind kind, struct device *d)
{
	struct object *o = NULL;

	fabric_lock(f);
	for (int i = 0; i < MAX_OBJECTS && !o; i++)
		if (f->objects[i].kind == FREE)
			o = &f->objects[i];
	for (int i = 0; i < MAX_OBJECTS && !o; i++)
		if (!alive(f->objects[i].pid))
			o = &f->objects[i];
	if (o) {
		uint64_t gen = o->gen % 4095 + 1;
		memset(o, 0, sizeof *o);
		o->gen = gen;
		o->pid = (uint64_t)getpid();
		o->device = (uint64_t)(d - f->devices);
		o->kind = kind;
	}
	fabric_unlock(f);
	if (!o)
		errno = ENOMEM;
	return o;
}

void object_free(struct object *o) { o->kind = FREE; }

uint32_t object_number(struct fabric *f, struct object *o)
{
	return (uint32_t)(o->gen * MAX_OBJECTS + (uint64_t)(o - f->objects));
}

struct object *object_of(struct fabric *f, enum kind kind, uint32_t number)
{
	struct object *o = &f->objects[number % MAX_OBJECTS];
	return o->kind == kind && object_number(f, o) == number && alive(o->pid) ? o : NULL;
}

void gid_words(const union ibv_gid *gid, uint64_t *hi, uint64_t *lo)
{
	*hi = *lo = 0;
	for (int i = 0; i < 8; i++) {
		*hi = *hi << 8 | gid->raw[i];
		*lo = *lo << 8 | gid->raw[i + 8];
	}
}

/* device_with_gid returns the device with an address of one type, or of any type if it is 0. */
struct device *device_with_gid(struct fabric *f, uint64_t hi, uint64_t lo, uint64_t type)
{
	for (int i = 0; i < MAX_DEVICES; i++)
		for (int j = 0; f->devices[i].used && j < MAX_GIDS; j++) {
			struct gid *g = &f->devices[i].gids[j];
			if (g->type && (!type || g->type == type) && g->hi == hi && g->lo == lo)
				return &f->devices[i];
		}
	return NULL;
}

static bool same_prefix(uint64_t hi1, uint64_t lo1, uint64_t hi2, uint64_t lo2, uint64_t bits)
{
	uint64_t hi = hi1 ^ hi2, lo = lo1 ^ lo2;
	if (bits <= 64)
		return bits == 0 || hi >> (64 - bits) == 0;
	return hi == 0 && (bits >= 128 || lo >> (128 - bits) == 0);
}

/* lid_of returns the device's address within an InfiniBand subnet. LIDs are unique, even across subnets. */
uint16_t lid_of(struct fabric *f, struct device *d)
{
	return d->link_layer == IBV_LINK_LAYER_ETHERNET ? 0 : (uint16_t)(d - f->devices + 1);
}

/* reach resolves an address as the kernel does for an AH and at RTR; returns 0 or an errno. */
int reach(struct fabric *f, struct device *d, const struct ibv_ah_attr *ah, struct device **peer)
{
	uint64_t hi, lo;

	bool ethernet = d->link_layer == IBV_LINK_LAYER_ETHERNET;
	if (ah->port_num != d->port || (!ah->is_global && (ethernet || d->k.grh_required)))
		return EINVAL;
	if (!ah->is_global) {
		*peer = ah->dlid && ah->dlid <= MAX_DEVICES ? &f->devices[ah->dlid - 1] : NULL;
		return *peer && (*peer)->used && (*peer)->gids[0].type && !d->k.down ? 0 : ENETUNREACH;
	}
	if (ah->grh.sgid_index >= MAX_GIDS || !d->gids[ah->grh.sgid_index].type)
		return EINVAL;
	if (d->k.down)
		return ENETUNREACH;
	struct gid *ours = &d->gids[ah->grh.sgid_index];
	gid_words(&ah->grh.dgid, &hi, &lo);
	*peer = device_with_gid(f, hi, lo, 0);
	if (!*peer || (*peer)->k.down || (ethernet && !same_prefix(ours->hi, ours->lo, hi, lo, ours->bits)))
		return ETIMEDOUT;
	return 0;
}
