/* Re-send with several unconfirmed messages (RM). Every message is sent at once; all that are unconfirmed are kept,
 * and sent again when no confirm comes in some time. The receiver is that of re-send.
 */
#include "hop.pml"

bool unconfirmed[MESSAGES_MAX + 1];

#define HAS_UNCONFIRMED (unconfirmed[1] || unconfirmed[2] || unconfirmed[3])

inline submit() {
  submitted++;
  unconfirmed[submitted] = true;
  put(there, submitted)
}

inline get_confirm() {
  pick_arrival(back);
  take(back);
  if
  :: unconfirmed[taken] -> unconfirmed[taken] = false; confirmed[taken] = true
  :: else
  fi;
  taken = 0
}

byte again;

inline send_again() {
  again = 1;
  do
  :: again <= MESSAGES_MAX ->
     if
     :: unconfirmed[again] -> put(there, again)
     :: else
     fi;
     again++
  :: else -> break
  od;
  again = 0
}

inline get_message() {
  pick_arrival(there);
  take(there);
  if
  :: comes_out(taken);
     if
     :: put(back, taken)
     :: crashes_after > 0 -> crashes_after--
     fi
  :: crashes_before > 0 -> crashes_before--
  fi;
  taken = 0
}

/* What is unconfirmed is in memory only. */
inline crash_sender() {
  sender_crashes--;
  unconfirmed[1] = false;
  unconfirmed[2] = false;
  unconfirmed[3] = false
}

init {
  set_parameters();
  do
  :: atomic { submitted < messages -> submit() }
  :: atomic { there.size > 0 -> get_message() }
  :: atomic { back.size > 0 -> get_confirm() }
  :: atomic { HAS_UNCONFIRMED && IS_QUIET -> send_again() }
  :: atomic { HAS_UNCONFIRMED && !IS_QUIET && early_wakes > 0 -> early_wakes--; send_again() }
  :: atomic { sender_crashes > 0 -> crash_sender() }
  ROUTE_AND_END
  od;
  judge_the_end()
}
