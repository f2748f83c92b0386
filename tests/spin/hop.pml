/* One link to the receiver, with messages, and one back, with confirms. */
#include "world.pml"

Link there;
Link back;

#define IS_QUIET (there.size == 0 && back.size == 0)

/* What may befall frames, and the end of it. */
#define ROUTE_AND_END \
  :: atomic { data_losses > 0 && there.size > 0 -> lose(there, data_losses) } \
  :: atomic { other_losses > 0 && back.size > 0 -> lose(back, other_losses) } \
  :: atomic { copies > 0 && there.size > 0 -> copy(there) } \
  :: atomic { copies > 0 && back.size > 0 -> copy(back) } \
  :: atomic { !healed -> heal() } \
  :: else -> break
