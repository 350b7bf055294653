// The plots of the story generator. The template language is described in story_generator.h. Everyone but the hero has
// the other gender, so "{h.he}" and "{f.he}" are never mistaken for one another; no pronoun of a character is written
// out.
#include "data/story_generator.h"

namespace taper {
namespace {

constexpr std::string_view kLostToy = R"~({t=@toy}{q=@wild}
{@open h} {@about h} Of all the things {h.he} owned, {h} loved [a|one] {t} best of all.

{@one_day} {h} took the {t.noun} to the {q}. {h} [put it down next to {@seen}|left it on a stone while {h.he} looked at {@seen}|was so busy with {@seen} that {h.he} forgot about it]. When {h.he} turned around, the {t} was gone!
"Where is my {t}?" {@asked h}. {@sad h}.

{@meets h f}. "[What is the matter|Why do you look so sad|Has something happened], {h}?" {@asked f}. "I have lost my {t}," {@said h}. "I will help you look," {@said f}. "[{@many} eyes|Four eyes|Four ears] are better than two, {h}!"
{@looks_around f}. {@looks_around h}. {@while} {f} [looked up|pointed|tapped {h} on the shoulder]. The {t} was [stuck in the branches of a {@tree} tree|floating in a puddle near the {@near}|in the nest of a sleepy magpie|under a heap of {@color} leaves]!

[Together they got it back with the help of a {@tool}|{f} climbed up and brought it back|They brought it back with a {@tool} and a lot of giggling]. {@glad h}. "Thank you, {f}," {@said h}. "Now we can both play with the {t}."
{@learned h f} {@moral_help}. {@end h})~";

constexpr std::string_view kSharedTreat = R"~(
{@open h} {@about h}

{@one_day} {e} gave {h} {@treat}. "{@be_good e}," {@said e}. {@walks h}.
There {h} saw {w}, a {w.trait} {w.kind} in a torn {w.clothes}. {w} was looking at the food with [big|hungry|{@eye}] eyes. "I have not eaten since {@weekday}," {@whispered w}.
{h} [looked at the food and then at {w}|thought about it for a moment|was hungry too, but {h.he} could see how thin {w} was]. "Then we will share," {@said h}. They sat down under a {@tree} tree and each ate half, {@eating}.

{@glad w}. "I will not forget this," {@said w}.
The next {@part}, {h} [slipped and fell into the {@water}|got lost in the {@wild}|could not carry {h.his} basket home|was caught in a sudden storm near the {@near}]. {h.He} called for help, and who should come running but {w}! [With a {@tool} and all {w.his} strength|Quick as the wind|Without a word], {w} brought {h} safely home.
"You shared with me, and so I came," {@said w}. {@learned h w} {@moral_share}. {@end h})~";

constexpr std::string_view kDark =
    R"~({@open h} {@about h} There was only one thing {h} did not like, and that was the dark.

Every night, when {e} blew out the {@color} candle, {h} saw [shapes|shadows] on the wall that looked like [{@many} hungry wolves|a giant with {@many} arms|a dragon in a {@clothes}]. {@afraid h}.
"I think that something is hiding behind the [curtain|door|{@color} chair]," {@whispered h}. {e} took {h} by the [{h.hands}|sleeve]. "Put on your {h.clothes}," {@said e}. "I want to show you something by the {n=@near}{n}, {h}."

They went out into the {@weather} night and walked as far as the {n}. At first {h} could see nothing but black. "Wait and look up," {@said e}. {@while} {h} saw [one star, then {@many} more, and then more than anyone could count|{@many} fireflies dancing over the {@water}|the moon climbing out of a {@tree} tree like a {@color} balloon].
"[All this was here the whole time|Was all this here even on {@weekday}|And I slept through all this], {e}?" {@asked h}. "Only the dark can show it, {h}," {@said e}.

{@glad h}. Back in bed, {h} looked at the shadow on the wall again. It was only {h.his} {h.clothes}, hanging on a [nail|chair|hook]. {@learned h e} {@moral_brave}. {@end h})~";

constexpr std::string_view kPractice = R"~({s=@skill}
{@open h} {@about h} More than anything, {h} wanted to learn to {s}.

{@one_day} {h} tried to {s} for the first time. It went [badly|terribly|all wrong], and {h} landed [in a puddle|in a bush|on {h.his} bottom] next to {@seen}. {f}, a {f.kind} who lived near the {@near}, saw it all. "[Are you hurt|Did you hurt your {@body}|Can you stand up], {h}?" {@asked f}.
"No, but I will never learn it," {@whispered h}. "Nobody can {s} on the first try," {@said f}. "I needed {@many} weeks, and I fell into the {@water} {@many} times."

So {h} tried again after [breakfast|lunch|school|supper], and again the next {@part}. [On the {@ordinal} day it went a little better|Each day {h} got a little better|Slowly, very slowly, {h} stopped falling down]. {h} [wrapped {h.his} {h.clothes} around {h.his} sore knee|ate {@treat} for strength|rubbed {h.his} sore {h.hands}] and went on. "One more time," {h} told {h.self} every [evening|afternoon|{@weekday}].
{@one_day} it happened. {h} could {s}! "Look at me, {f}!" {@cried h}. Even {@creature} seemed to stop and watch.

{@glad h}. {f} clapped and threw {f.his} {f.clothes} into the air. {@learned h f} {@moral_try}. {@end h})~";

constexpr std::string_view kRescue = R"~({b=@baby}{r=@trap}
{@open h} {@about h}

{@one_day} {h} heard a {@sound} [near|behind|not far from] the {@near}. {h.He} followed it and found a {b} that was {r}. "[Help me|Help|Please], I want to go home to the {@near}!" {@whispered_it} the {b.noun}.
"Do not be afraid, little {b.noun}, I will get you out," {@said h}. {h} [pulled with all {h.his} might|stretched as far as {h.he} could|tried with a {@tool}], but {h.he} was too [small|short|weak] to do it alone. {@thinks h}.

Then {h} remembered {f}, the {f.trait} {f.kind} who lived behind the {@near}, and ran to fetch {f.him}. "Bring a {@tool}!" {@cried h}. {f} [dropped {f.his} {f.clothes}|left {f.his} supper on the table|did not ask a single question] and came at once.
{f} held the {@tool} while {h} [counted to {@count}|reached out|lay flat on the ground]. {@while} the {b} was free! It shook itself and licked {h} on the [nose|ear|{h.hands}].

They carried the {b.noun} home in a {@clothes}, and its mother [cried for joy|gave them {@treat}|thanked them {@many} times]. {@glad h}. {@learned h f} {@moral_help}. {@end h})~";

constexpr std::string_view kBroken = R"~({v=@breakable}
{@open h} {@about h} {e} had a {v} that stood on the shelf by the window. "It came from my own grandmother, so please do not touch it," {e} always said.

{@one_day} {h} was playing [pirates|tag|circus|train] in the kitchen. {h.He} jumped over a [chair|basket|bucket], bumped the shelf, and down came the {v}. [Crash|Crack|Smash], it went, and lay on the {@color} floor in {@many} pieces.
{@afraid h}. "I could say that [the cat|the wind|a bird] did it," {@whispered h}. {h.He} hid the pieces [under the rug|behind the stove|in {h.his} {h.clothes}] and tried to eat {@treat}, but it had no taste at all.

When {e} came home, {e.he} saw the empty shelf. "Has anyone seen my {v}?" {@asked e}. {h} looked at the floor, then at {e}. "I broke it, {e}," {@whispered h}. "I was [playing|jumping|running] in the [kitchen|house] like a {@creature_noun}, and I am very sorry."
For a moment it was so quiet that {h} could hear {@seen_outside}. Then {e} knelt down. "I am sad about the {v.noun}," {@said e}. "But I am [proud|glad|happy] that you told me, {h}."

They glued the {v.noun} together with {@color} paint in the cracks, and {e} said that it looked [prettier|stronger|merrier] than before. {@glad h}. {@learned h e} {@moral_true}. {@end h})~";

constexpr std::string_view kBuild = R"~({b=@project}
{@open h} {@about h} {@best_friend h f}.

{@one_day} {h} said, "Let us build a {b}!" They gathered [sticks|boards|stones], {@many} [nails|ropes|old boxes], and a {@tool}. {h} wanted it to be {@color}, and {f} wanted it to be {@color}. {h} built on the left side, {f} built on the right side, and neither of them listened.
{@while} the {b} [fell over|fell down|broke in two] with a loud crash. "[It is your fault|Now look what you did|You never listen], {f}!" {@cried h}. "You put the [nails|stones|boards] in the wrong place," {@said f}. {f} went to sit by the {@near}, and {h} stayed next to {@seen}.

{@sad h}. {@sad f}. At last {h} walked over with {@treat}. "I did not listen to you, and I am sorry," {@said h}. "I did not listen either," {@said f}. "What if the bottom is {@color} and the top is {@color}?"
So {h} and {f} began again. This time {h} held the [boards|corners|{@tool}] while {f} tied the [knots|ropes], and {@many} [ants|sparrows|neighbors|chickens] watched them work. When the sun went down over the {@near}, the {b} was finished, and it did not even wobble.

{@glad f}. "Nobody could have built it alone," {@said f}. {@learned h f} {@moral_help}. {@end h})~";

constexpr std::string_view kRace = R"~({z=@prize}
{@open h} {@about h} {h} was the fastest {h.kind} {@land}, and this year {h.he} wanted to win the great {@near} race. The prize was a {z}.

{@one_day} {n=@many}{n} runners lined up beside the {@near}. {f}, a {f.trait} {f.kind} with a {f.clothes}, stood next to {h}. "Good luck, {h}," {@said f}. "I do not need luck, {f}, I have fast feet," {@said h}. Then the {@color} [flag fell|flag went up|balloon burst], and off ran {n} pairs of feet!
{h} ran past {@seen} and over the bridge, far ahead of the rest. But in the {@wild} {h} heard a {@sound} behind {h.him}. {f} had [tripped over a root|stepped in a hole|slipped on wet leaves], and nobody else had stopped.

{h} looked at the finish line, which was only {@many} steps away. Then {h.he} looked back at {f}. "[The {z}|That prize] can wait," {@whispered h}. {h.He} ran back, wrapped {h.his} {h.clothes} around {f.his} ankle, and let {f} lean on {h.his} shoulder.
Together {h} and {f} came in last of all. But the people by the {@near} clapped louder than they had for the winner. "You gave up the {z} for me," {@said f}. "I would rather have a friend," {@said h}.

{@glad h}. {@learned h f} {@moral_proud}. {@end h})~";

constexpr std::string_view kSeed = R"~({p=@plant}{season=@spring}
{@open h} {@about h}

{@one_day} {e} gave {h} a tiny {p} seed. "Put it in the ground, give it water, and wait," {@said e}. {h} planted it [beside the {@near}|under the kitchen window|next to the {@color} gate] and sat down to watch. {h} watched the ground for {@many} minutes, but nothing had happened. "[Is it broken|Is it asleep|Has it forgotten me], {e}?" {@asked h}.
"A seed works where you cannot see it," {@said e}. The next {@part}, {h} [sang to it about {@song}|told it a story about {@song}|gave it {@many} drops of water]. Still nothing came up, not even on the {@ordinal} [morning|day|evening], when {h} {@peeked}. {@sad h}.

{h} wanted to dig it up and look. But {e} shook {e.his} head. "If you dig it up, it must start all over again," {@said e}. So {h} waited, and pulled the weeds, and chased away {@many} [snails|crows|beetles|greedy sparrows]. [It rained on {@weekday} and was sunny on {@weekday}|There was a {@weather} week and then a {@weather} one].
And one {@weather} {@part}, after {@many} long weeks, there was a tiny green hook in the brown soil! "[It is here|It is growing|It has woken up], {e}!" {@cried h}. It grew as high as {h.his} knee, then as high as {h.his} {h.clothes}, and by the end of summer it was the finest {p} {@land}.

{@glad h}. {h} and {e} shared it with {@many} neighbors, and {h} saved one seed in a {@material} box for the next year. {@learned h e} {@moral_wait}. {@end h})~";

constexpr std::string_view kStorm = R"~({@open h} {@about h}

{@one_day} dark clouds rolled in over the {@near}. {h} was [picking berries|flying a kite|gathering sticks] in the {@wild} when the first drops fell. The wind [pulled at|blew away|tugged] {h.his} {h.clothes}, and thunder rumbled like {@many} [drums|wagons|barrels].
{@afraid h}. {h} ran until {h.he} found a hollow {@tree} tree, but someone was already inside. It was {f}, a {f.kind} with a wet {f.clothes}. "There is hardly room for me," {@said f}. "Please, {f}," {@whispered h}. "The rain is so cold, and {@my_wet}."
{f} looked at the rain and then at {h}. "Come in, then, {h}, and I will pull in my {f.hands}," {@said f}. They sat so close together that {@seen} could not have fit between them.

Soon they heard a {@sound} outside. {@many} wet [mice|birds|beetles|hedgehogs] stood in the mud. "Is there room for {@many} more?" asked the [biggest|smallest|wettest], who wore {@leaf}. {h} and {f} laughed. "There is always room," {@said h}. {f} shared {@treat}, and {h} told a story about {@song}.
It was so warm inside the {@tree} tree that neither {h} nor {f} noticed when the storm ended. {@while} a {@color} ray of sun came in, and over the {@water} stood a rainbow.

{@glad h}. {@learned h f} {@moral_share}. {@end h})~";

constexpr std::string_view kNightSound = R"~({@open h} {@about h}

One {@weather} night, {h} woke up because of a {s=@sound}{s}. It came from [the attic|the cellar|behind the shed|the old well], and {h} counted it {@many} times. {@afraid h}.
Now {f} was staying for the night. "Did you hear that, {f}?" {@whispered h}. {f} sat up in {f.his} {f.clothes}. "It must be a [ghost|monster|robber] with {@many} [teeth|legs|eyes]," {@whispered f}.
"Or it may be something that needs help," {@said h}. {h} took a {@tool} and a {@color} candle, and {f} followed, holding on to {h.his} {h.clothes}. Step by step {h} and {f} went past {@thing_indoors}.

The {s} came again, very near now. {h} [pulled the door open|lifted the candle|counted to {@count} and looked]. There sat a [tiny owl|baby raccoon|wet kitten|young bat], tangled in [an old curtain|a ball of {@color} wool|a fishing net]! "You are no monster at all," {@said h}.
{f} began to laugh, and so did {h}. They cut it loose and gave it {@treat}. {@while} it flew or hopped away, as every wild thing must, and at the window it looked back {@count} times.

{@glad h}. {@learned h f} {@moral_brave}. {@end h})~";

constexpr std::string_view kNewcomer = R"~({@open h} {@about h}

{@one_day} a wagon with {@many} boxes stopped beside the {@near}. A new family was moving in, and with them came {f}, a {f.trait} {f.kind} in a {f.clothes}. {f} did not say a word. {f.He} sat on the steps and looked at {@seen}.
"[{f} is not friendly|{f} never says a word|{f} looks like {@creature}]," the others said, and they went off to play without {f.him}. But {h} remembered how it felt to be [new|alone|left out]. {@thinks h}.

The next {@part}, {h} put {@treat} on the steps, smiled, and went away. The {@part} after that, {h} left a {@treasure}. On the {@ordinal} day, there was something waiting for {h}: a picture of {@song}, drawn with a {@color} pencil.
"[Did you make this|Is this for me|Did you draw all of this], {f}?" {@asked h}. {f} nodded. "I wanted to say thank you," {@whispered f}. "My words get stuck like [a {@toy_noun} in the mud|{@creature}], {h}." {h} sat down. "Then we can draw together until they come out," {@said h}.

So they drew [castles|ships|{@seen}|the whole town], and {@while} {f} was talking about {@hobby}, and about the {@near} where {f.he} had lived before. {@glad f}. {@learned h f} {@moral_kind}. {@end h})~";

constexpr std::string_view kMap = R"~({m=@treasure}
{@open h} {@about h} {@best_friend h f}.

{@one_day} {h} found a map inside a {m}. A {@color} line led from the {@near} to a big {@color} cross. "[It is a treasure map|This is a real map|A treasure must be hidden there], {f}!" {@cried h}. "What if it is guarded by {@many} pirates?" {@asked f}. But {f.he} was already putting on {f.his} {f.clothes}.
{@walks h}. They crossed the {@water} on {@many} stones, and {f} got one wet foot. They climbed a {@hill} and stopped to eat {@treat}. "The map says {@count} steps to the crooked {@tree} tree," {@said f}.

Under the {@tree} tree they dug with a {@tool} until they hit a {@material} box. {@afraid f}. {h} opened the lid, and inside was [only a note|nothing but a piece of paper]. It said, in {@color} ink, "Turn around [once|slowly|{@count} times]."
"[Is that all|Is there no gold|Not even a {@treasure}], {h}?" {@asked f}. {h} and {f} turned around. Far below lay [the whole valley in {@color} light|the sea with {@many} white sails|the village with smoke rising from {@many} chimneys], and the sun was going down behind the {@near}. For a long time neither {h} nor {f} said a word.

"It is the best treasure of all, {f}, because nobody can take it away," {@said h}. {@glad f}. They put a {@toy} into the box for the next ones to find. {@end h})~";

}  // namespace

const std::vector<std::string_view>& more_story_plots();

const std::vector<std::string_view>& story_plots() {
  static const std::vector<std::string_view> plots = [] {
    std::vector<std::string_view> all = {kLostToy, kSharedTreat, kDark,  kPractice,   kRescue,   kBroken, kBuild,
                                         kRace,    kSeed,        kStorm, kNightSound, kNewcomer, kMap};
    all.insert(all.end(), more_story_plots().begin(), more_story_plots().end());
    return all;
  }();
  return plots;
}

}  // namespace taper
