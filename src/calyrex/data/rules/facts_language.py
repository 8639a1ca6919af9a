"""Facts about words and everyday things that questions are made of, one a line."""

# word | opposite | the opposite in French, Spanish and German
OPPOSITES = """
hot|cold|froid|frío|kalt
big|small|petit|pequeño|klein
fast|slow|lent|lento|langsam
happy|sad|triste|triste|traurig
old|young|jeune|joven|jung
tall|short|petit|bajo|klein
light|dark|sombre|oscuro|dunkel
full|empty|vide|vacío|leer
rich|poor|pauvre|pobre|arm
clean|dirty|sale|sucio|schmutzig
wet|dry|sec|seco|trocken
loud|quiet|calme|silencioso|leise
strong|weak|faible|débil|schwach
open|closed|fermé|cerrado|geschlossen
early|late|tard|tarde|spät
good|bad|mauvais|malo|schlecht
easy|hard|difficile|difícil|schwer
thick|thin|mince|delgado|dünn
near|far|loin|lejos|fern
soft|hard|dur|duro|hart
sweet|bitter|amer|amargo|bitter
wide|narrow|étroit|estrecho|eng
day|night
up|down|bas|abajo|unten
left|right
north|south
east|west
true|false|faux|falso|falsch
always|never|jamais|nunca|nie
begin|end|finir|terminar|enden
buy|sell|vendre|vender|verkaufen
love|hate
friend|enemy
war|peace
winter|summer
summer|winter
win|lose|perdre|perder|verlieren
push|pull|tirer|tirar|ziehen
inside|outside|dehors|fuera|draußen
heavy|light|léger|ligero|leicht
deep|shallow
ancient|modern
brave|cowardly
generous|stingy
smooth|rough
arrive|leave
remember|forget
entrance|exit
"""

# singular | plural
PLURALS = """
mouse|mice
goose|geese
foot|feet
tooth|teeth
child|children
man|men
woman|women
ox|oxen
leaf|leaves
wolf|wolves
knife|knives
loaf|loaves
city|cities
baby|babies
potato|potatoes
box|boxes
sheep|sheep
person|people
"""

# verb | past tense
PASTS = """
go|went
eat|ate
see|saw
run|ran
write|wrote
sing|sang
swim|swam
drink|drank
fly|flew
buy|bought
think|thought
teach|taught
catch|caught
bring|brought
break|broke
speak|spoke
give|gave
take|took
know|knew
grow|grew
draw|drew
drive|drove
sleep|slept
keep|kept
find|found
build|built
win|won
begin|began
forget|forgot
choose|chose
"""

# worker | what they do, in the third person
JOBS = """
baker|bakes bread
barber|cuts hair
butcher|sells meat
carpenter|builds with wood
chef|cooks meals
dentist|treats teeth
doctor|heals patients
farmer|grows crops
firefighter|puts out fires
fisherman|catches fish
florist|sells flowers
gardener|tends plants
jeweler|makes jewelry
judge|rules in court
librarian|lends books
mechanic|repairs engines
miner|digs for ore
pilot|flies planes
plumber|fixes pipes
poet|writes poems
potter|shapes clay
sailor|works on ships
shepherd|herds sheep
shoemaker|makes shoes
singer|sings songs
tailor|sews clothes
teacher|teaches pupils
translator|translates texts
veterinarian|treats animals
waiter|serves food
"""

# thing | definition that follows "is"
DEFINITIONS = """
bakery|a shop that sells bread
library|a place that lends books
thermometer|a tool that measures temperature
clock|a device that tells the time
telescope|a device that shows distant stars
island|land with water all around
desert|a dry place with little rain
volcano|a mountain that can erupt
glacier|a slow river of ice
orchard|a field of fruit trees
vineyard|a field of grape vines
stable|a house for horses
kennel|a shelter for dogs
aquarium|a tank for fish
museum|a building that shows art and history
hospital|a place where the sick are treated
school|a place where children learn
harbor|a safe place for ships
lighthouse|a tower that guides ships
umbrella|a cover that keeps off rain
compass|a tool that shows north
ladder|a frame with steps for climbing
pillow|a cushion for the head
recipe|a plan for cooking a dish
novel|a long story in prose
sonnet|a poem of fourteen lines
orchestra|a large group of musicians
triangle|a shape with three sides
dictionary|a book that explains words
map|a drawing of a place
bridge|a road over a river
tunnel|a road under the ground
wallet|a small case for money
passport|a document for foreign travel
anthem|the song of a country
"""

# question | answer | bare answer
SCIENCE = """
What do bees make?|Bees make honey.|Honey
What do plants need to grow?|Plants need light and water to grow.|Light and water
What gas do people breathe in to live?|People breathe in oxygen to live.|Oxygen
What is frozen water called?|Frozen water is called ice.|Ice
What star is closest to Earth?|The star closest to Earth is the Sun.|The Sun
What goes around the Earth?|The Moon goes around the Earth.|The Moon
Which planet is known as the red planet?|The red planet is Mars.|Mars
Which planet is the largest?|The largest planet is Jupiter.|Jupiter
Which planet has bright rings?|The planet with bright rings is Saturn.|Saturn
What pulls things to the ground?|Gravity pulls things to the ground.|Gravity
What organ pumps blood?|The heart pumps blood.|The heart
What organ do we think with?|We think with the brain.|The brain
What do caterpillars turn into?|Caterpillars turn into butterflies.|Butterflies
What do tadpoles become?|Tadpoles become frogs.|Frogs
At what Celsius temperature does water boil?|Water boils at 100 degrees Celsius.|100 degrees
At what Celsius temperature does water freeze?|Water freezes at 0 degrees Celsius.|0 degrees
What is the largest ocean?|The largest ocean is the Pacific.|The Pacific
What is the highest mountain on Earth?|The highest mountain on Earth is Mount Everest.|Mount Everest
What is the largest animal?|The largest animal is the blue whale.|The blue whale
What is the fastest land animal?|The fastest land animal is the cheetah.|The cheetah
What is the tallest animal?|The tallest animal is the giraffe.|The giraffe
What do we call molten rock from a volcano?|Molten rock from a volcano is called lava.|Lava
What part of a plant is under the ground?|The roots of a plant are under the ground.|The roots
What do cows eat?|Cows eat grass.|Grass
What do pandas eat?|Pandas eat bamboo.|Bamboo
What do silkworms make?|Silkworms make silk.|Silk
What comes from hens?|Eggs come from hens.|Eggs
What is bread made from?|Bread is made from flour.|Flour
What do clouds bring?|Clouds bring rain.|Rain
What do magnets attract?|Magnets attract iron.|Iron
In which season does snow fall most?|Snow falls most in winter.|Winter
In which season do leaves fall?|Leaves fall in autumn.|Autumn
What is the hardest natural material?|The hardest natural material is diamond.|Diamond
How do fish breathe?|Fish breathe with gills.|With gills
How do birds fly?|Birds fly with wings.|With wings
"""

# plural category | members
LISTS = """
fruits|apples pears plums grapes cherries
vegetables|carrots onions peas beans leeks
colors|red blue green yellow purple
farm animals|cows pigs sheep goats hens
wild animals|lions tigers wolves bears foxes
birds|owls crows eagles swans ducks
insects|ants bees wasps flies beetles
fish|trout salmon tuna cod herring
trees|oak pine birch willow maple
flowers|roses tulips daisies lilies poppies
tools|hammers saws drills pliers wrenches
metals|gold silver iron copper zinc
planets|Mars Venus Earth Saturn Jupiter
sports|tennis golf rugby hockey football
musical instruments|piano violin flute harp drums
drinks|tea coffee milk juice water
vehicles|cars buses trucks vans trains
clothes|shirts socks coats hats skirts
pieces of furniture|chairs tables beds desks shelves
shapes|circles squares triangles cubes cones
jobs|baker teacher nurse farmer lawyer
countries in Europe|France Spain Italy Poland Greece
countries in Asia|China India Japan Nepal Thailand
countries in Africa|Egypt Kenya Ghana Sudan Nigeria
rivers|Nile Amazon Danube Rhine Thames
languages|English French Spanish German Italian
spices|pepper cinnamon ginger saffron cumin
parts of the body|head arms legs hands feet
games|chess checkers poker dominoes tag
rooms in a house|kitchen bedroom bathroom hall cellar
weekdays|Monday Tuesday Wednesday Thursday Friday
gases|oxygen helium hydrogen nitrogen neon
pets|cats dogs hamsters rabbits parrots
nuts|almonds walnuts hazelnuts pecans cashews
toys|dolls balls kites puzzles blocks
herbs|basil mint parsley thyme sage
dances|waltz tango polka salsa samba
"""
