// SPDX-License-Identifier: Apache-2.0
//
// The limit of the network: a ring of N nodes in which each sends 2(n-1)/n * bytes to the next and
// receives as much from the one before, both at once. That is what an allreduce cannot do without;
// here nothing is added up, and nobody waits for a neighbour's chunk. One process a node:
//   tcp_ring --rank 0 --ranks 4 --addresses 10.0.0.1,10.0.0.2,... --port 7700 --sizes 1048576
//            [--streams 1] [--budget-ms 300] [--min-iters 5]
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop.h"
#include "work.h"

enum { kMaxStreams = 16 };

typedef struct {
  int rank;
  int ranks;
  int streams;
  int to[kMaxStreams];    // connections to the next node
  int from[kMaxStreams];  // connections from the one before
  char* out;
  char* in;
  size_t room;   // bytes of each of the two buffers, as an allreduce of that size has
  size_t bytes;  // that one operation sends, and receives: more than `room`, so it wraps
} Ring;

static void die(const char* what) {
  fprintf(stderr, "tcp_ring: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
  exit(1);
}

static size_t until_wrap(size_t begin, size_t end, size_t room) {
  const size_t left = room - begin % room;
  return end - begin < left ? end - begin : left;
}

// Sends `size` bytes and receives `size` bytes, as both directions allow, from and to buffers of
// `room` bytes. Every stream carries an equal share.
static void exchange(Ring* ring, const char* out, char* in, size_t size, size_t room) {
  struct {
    size_t sent, send_end, received, receive_end;
  } stream[kMaxStreams];
  const size_t share = (size + (size_t)ring->streams - 1) / (size_t)ring->streams;
  int open = 0;
  for (int i = 0; i < ring->streams; ++i) {
    const size_t begin = share * (size_t)i < size ? share * (size_t)i : size;
    const size_t end = begin + share < size ? begin + share : size;
    stream[i].sent = stream[i].received = begin;
    stream[i].send_end = stream[i].receive_end = end;
    open += 2 * (begin < end);
  }
  while (open > 0) {
    int progress = 0;
    struct pollfd wanted[2 * kMaxStreams];
    nfds_t count = 0;
    for (int i = 0; i < ring->streams; ++i) {
      if (stream[i].received < stream[i].receive_end) {
        const size_t at = stream[i].received;
        const ssize_t n = recv(ring->from[i], in + at % room,
                               until_wrap(at, stream[i].receive_end, room), MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN)) die("recv");
        if (n > 0) {
          stream[i].received += (size_t)n;
          progress = 1;
          open -= stream[i].received == stream[i].receive_end;
        }
        wanted[count++] = (struct pollfd){ring->from[i], POLLIN, 0};
      }
      if (stream[i].sent < stream[i].send_end) {
        const size_t at = stream[i].sent;
        const ssize_t n =
            send(ring->to[i], out + at % room, until_wrap(at, stream[i].send_end, room),
                 MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) die("send");
        if (n > 0) {
          stream[i].sent += (size_t)n;
          progress = 1;
          open -= stream[i].sent == stream[i].send_end;
        }
        wanted[count++] = (struct pollfd){ring->to[i], POLLOUT, 0};
      }
    }
    if (!progress && open > 0 && poll(wanted, count, -1) < 0 && errno != EINTR) die("poll");
  }
}

// After n-1 rounds in which each tells the next, everybody has been heard of.
static void barrier(void* context) {
  Ring* ring = context;
  const int streams = ring->streams;
  ring->streams = 1;
  char out = 1;
  char in = 0;
  for (int step = 0; step < ring->ranks - 1; ++step) exchange(ring, &out, &in, 1, 1);
  ring->streams = streams;
}

static double max_over_ranks(void* context, double value) {
  Ring* ring = context;
  const int streams = ring->streams;
  ring->streams = 1;
  double out = value;
  for (int step = 0; step < ring->ranks - 1; ++step) {
    double in = 0;
    exchange(ring, (const char*)&out, (char*)&in, sizeof(double), sizeof(double));
    out = in;
    if (in > value) value = in;
  }
  ring->streams = streams;
  return value;
}

static void operation(void* context) {
  Ring* ring = context;
  exchange(ring, ring->out, ring->in, ring->bytes, ring->room);
}

static struct sockaddr_in address_of(const char* host, int port) {
  struct sockaddr_in address;
  memset(&address, 0, sizeof(address));
  address.sin_family = AF_INET;
  address.sin_port = htons((uint16_t)port);
  if (inet_pton(AF_INET, host, &address.sin_addr) != 1) die(host);
  return address;
}

static void connect_ring(Ring* ring, char* addresses, int port) {
  char* hosts[256];
  char* rest = NULL;
  int n = 0;
  for (char* host = strtok_r(addresses, ",", &rest); host && n < 256;
       host = strtok_r(NULL, ",", &rest)) {
    hosts[n++] = host;
  }
  if (n != ring->ranks) die("--addresses must name every rank");
  const int yes = 1;
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in own = address_of(hosts[ring->rank], port);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (bind(listener, (struct sockaddr*)&own, sizeof(own)) != 0) die("bind");
  if (listen(listener, kMaxStreams) != 0) die("listen");
  struct sockaddr_in next = address_of(hosts[(ring->rank + 1) % ring->ranks], port);
  for (int i = 0; i < ring->streams; ++i) {
    int tries = 0;
    for (;;) {  // the next node may not listen yet
      ring->to[i] = socket(AF_INET, SOCK_STREAM, 0);
      if (connect(ring->to[i], (struct sockaddr*)&next, sizeof(next)) == 0) break;
      close(ring->to[i]);
      if (++tries > 1000) die("connect");
      usleep(10000);
    }
    setsockopt(ring->to[i], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  }
  for (int i = 0; i < ring->streams; ++i) {
    ring->from[i] = accept(listener, NULL, NULL);
    if (ring->from[i] < 0) die("accept");
  }
  close(listener);
}

int main(int argc, char** argv) {
  WorkArgs args = work_args(argc, argv);
  Ring ring;
  memset(&ring, 0, sizeof(ring));
  ring.rank = atoi(work_arg(argc, argv, "--rank", "0"));
  ring.ranks = atoi(work_arg(argc, argv, "--ranks", "2"));
  ring.streams = atoi(work_arg(argc, argv, "--streams", "1"));
  if (ring.streams < 1 || ring.streams > kMaxStreams) die("--streams");
  char addresses[8192];
  snprintf(addresses, sizeof(addresses), "%s", work_arg(argc, argv, "--addresses", ""));
  connect_ring(&ring, addresses, atoi(work_arg(argc, argv, "--port", "7700")));

  const BenchPlan plan = {args.budget_ms * 1e3, args.min_iters, 20000};
  char* rest = NULL;
  for (char* size = strtok_r(args.sizes, ",", &rest); size; size = strtok_r(NULL, ",", &rest)) {
    const size_t whole = strtoull(size, NULL, 10);
    ring.room = whole;
    ring.bytes = whole / (size_t)ring.ranks * 2 * (size_t)(ring.ranks - 1);
    ring.out = malloc(ring.room);
    ring.in = malloc(ring.room);
    if (whole == 0 || ring.out == NULL || ring.in == NULL) die("no memory for --sizes");
    memset(ring.out, 1, ring.room);
    memset(ring.in, 2, ring.room);
    const BenchSubject subject = {&ring, barrier, operation, max_over_ranks};
    const BenchResult result = bench_measure(&subject, &plan);
    if (ring.rank == 0) bench_print("ring", "bytes", ring.ranks, whole, "private", &result);
    free(ring.out);
    free(ring.in);
  }
  return 0;
}
